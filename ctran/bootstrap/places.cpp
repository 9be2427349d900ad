#include "ctran/bootstrap/places.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "ctran/base/checked.h"
#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/base/sha256.h"
#include "ctran/base/text.h"
#include "ctran/os/process.h"

namespace ctran {
namespace {

static_assert(std::is_trivially_copyable_v<Site> && std::is_trivially_copyable_v<Place>);
static_assert(sizeof(Place) == 16 && sizeof(Site) % alignof(Place) == 0);

std::array<std::byte, 16> hashOf(std::string_view text) {
  const Digest digest = Sha256().add(std::as_bytes(std::span(text))).finish();
  std::array<std::byte, 16> hash;
  std::copy_n(digest.begin(), hash.size(), hash.begin());
  return hash;
}

/// Numbers sites, equal ones alike.
class Sites {
 public:
  uint32_t numberOf(const Site& site) {
    const std::string_view bytes(reinterpret_cast<const char*>(&site), sizeof site);
    const auto [found, isNew] =
        numbers_.try_emplace(std::string(bytes), static_cast<uint32_t>(all.size()));
    if (isNew) all.push_back(site);
    return found->second;
  }

  std::vector<Site> all;

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
};

}  // namespace

Site Site::at(const std::string& host, const std::vector<NetAddress>& addresses) {
  Site site;
  site.host = hashOf(host);
  site.machine = hashOf(std::string_view(host).substr(0, host.find('/')));
  const std::string name = hostName();
  std::copy_n(name.begin(), std::min(name.size(), site.name.size() - 1), site.name.begin());
  std::copy_n(addresses.begin(), std::min(addresses.size(), kMaxAddresses), site.addresses.begin());
  for (NetAddress& address : site.addresses) address.port = 0;
  return site;
}

Places::Places(std::span<const Place> places, std::span<const Site> sites) {
  const Head head{static_cast<uint32_t>(places.size()), static_cast<uint32_t>(sites.size())};
  const auto owner = std::make_shared<std::vector<std::byte>>(sizeof head + places.size_bytes() +
                                                              sites.size_bytes());
  std::byte* to = owner->data();
  std::memcpy(to, &head, sizeof head);
  std::memcpy(to + sizeof head, places.data(), places.size_bytes());
  std::memcpy(to + sizeof head + places.size_bytes(), sites.data(), sites.size_bytes());
  bytes_ = *owner;
  owner_ = owner;
}

Places::Places(Place place, const Site& site) {
  place.site = 0;
  *this = Places({&place, 1}, {&site, 1});
}

Places Places::merged(std::span<const Places> parts) {
  std::vector<Place> places;
  Sites sites;
  for (const Places& part : parts) {
    std::vector<uint32_t> numbers;
    for (uint32_t s = 0; s < part.head().sites; ++s) {
      numbers.push_back(sites.numberOf(part.sites()[s]));
    }
    for (int i = 0; i < part.size(); ++i) {
      places.push_back(part[i]);
      places.back().site = numbers[part[i].site];
    }
  }
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.rank < b.rank; });
  return {places, sites.all};
}

bool Places::makeSense(int size) const {
  if (bytes_.size() < sizeof(Head)) return false;
  const Checked expected = Checked(sizeof(Head)) + Checked(head().ranks) * sizeof(Place) +
                           Checked(head().sites) * sizeof(Site);
  if (!expected.isAtMost(bytes_.size()) || expected.atMost(SIZE_MAX, 0, "") != bytes_.size() ||
      head().ranks == 0) {
    return false;
  }
  for (int i = 0; i < this->size(); ++i) {
    const Place& place = places()[i];
    const int before = i == 0 ? -1 : places()[i - 1].rank;
    if (place.rank <= before || place.rank >= size || place.site >= head().sites) return false;
  }
  return true;
}

Places Places::received(std::vector<std::byte> bytes, int size, int from) {
  const auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  Places places;
  places.bytes_ = *owner;
  places.owner_ = owner;
  if (places.makeSense(size)) return places;
  throw Error(ErrorKind::Mismatch,
              "rank " + std::to_string(from) + " tells places of ranks that make no sense", {from},
              "new_comm");
}

Places Places::shared(std::shared_ptr<const void> owner, std::span<const std::byte> bytes,
                      int size) {
  Places places;
  places.owner_ = std::move(owner);
  places.bytes_ = bytes;
  if (places.makeSense(size) && places.size() == size) return places;
  throw Error(ErrorKind::System, "the first rank of the host has shared other places");
}

size_t Places::mostBytes(int ranks) {
  return sizeof(Head) + static_cast<size_t>(ranks) * (sizeof(Place) + sizeof(Site));
}

std::vector<NetAddress> Places::addressesOf(int rank) const {
  std::vector<NetAddress> addresses;
  for (NetAddress address : siteOf(rank).addresses) {
    if (address.family == 0) continue;
    address.port = places()[rank].port;
    addresses.push_back(address);
  }
  return addresses;
}

std::string Places::describe(int rank) const {
  const auto& name = siteOf(rank).name;
  return printable(boundedText(name)) + " (pid " + std::to_string(places()[rank].pid) + ")";
}

std::vector<int> Places::hosts() const {
  std::map<std::array<std::byte, 16>, int> numbers;
  std::vector<int> ofSite;
  for (uint32_t s = 0; s < head().sites; ++s) {
    ofSite.push_back(
        numbers.emplace(sites()[s].host, static_cast<int>(numbers.size())).first->second);
  }
  std::vector<int> hosts(static_cast<size_t>(size()));
  for (int r = 0; r < size(); ++r) hosts[r] = ofSite[places()[r].site];
  return hosts;
}

Places Places::selected(std::span<const int> ranks, std::span<const uint16_t> ports,
                        std::span<const int> hosts) const {
  std::vector<Place> places;
  Sites sites;
  for (size_t i = 0; i < ranks.size(); ++i) {
    Place place = (*this)[ranks[i]];
    place.rank = static_cast<int32_t>(i);
    Site site = siteOf(ranks[i]);
    if (!hosts.empty()) site.host = hashOf("part " + std::to_string(hosts[i]));
    place.site = sites.numberOf(site);
    place.port = ports[i];
    places.push_back(place);
  }
  return {places, sites.all};
}

}  // namespace ctran
