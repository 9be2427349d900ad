#include "ctran/topology/host_map.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "ctran/base/error.h"

namespace ctran {
namespace {

std::vector<int> numbered(const std::vector<std::string>& hosts) {
  std::unordered_map<std::string, int> numbers;
  std::vector<int> all;
  for (const std::string& host : hosts) {
    all.push_back(numbers.emplace(host, static_cast<int>(numbers.size())).first->second);
  }
  return all;
}

}  // namespace

HostMap::HostMap(const std::vector<std::string>& hosts, int rank, int most)
    : HostMap(numbered(hosts), rank, most) {}

HostMap::HostMap(std::span<const int> hosts, int rank, int most) : rank_(rank) {
  const size_t size = hosts.size();
  struct Open {
    int group, ranks;
  };
  std::unordered_map<int, Open> open;  // the group that takes the next rank of a host
  std::vector<int> ranks;              // of each group
  std::vector<int> groupOf(size), indexOf(size);
  for (size_t r = 0; r < size; ++r) {
    const auto [found, isNew] = open.try_emplace(hosts[r], Open{0, most});
    Open& last = found->second;
    if (last.ranks == most) {
      last = {static_cast<int>(ranks.size()), 0};
      ranks.push_back(0);
    }
    groupOf[r] = last.group;
    indexOf[r] = last.ranks++;
    ++ranks[last.group];
  }
  count_ = kHead + 3 * size + ranks.size() + 1;
  const std::shared_ptr<int[]> image(new int[count_]);
  image[kSize] = static_cast<int>(size);
  image[kHosts] = static_cast<int>(ranks.size());
  image[kRails] = *std::min_element(ranks.begin(), ranks.end());
  std::copy(groupOf.begin(), groupOf.end(), &image[kHead]);
  std::copy(indexOf.begin(), indexOf.end(), &image[kHead + size]);
  int* const first = &image[kHead + 2 * size];
  first[0] = 0;
  std::partial_sum(ranks.begin(), ranks.end(), first + 1);
  int* const order = first + ranks.size() + 1;
  for (size_t r = 0; r < size; ++r) order[first[groupOf[r]] + indexOf[r]] = static_cast<int>(r);
  image[kIsInOrder] = std::is_sorted(order, order + size) ? 1 : 0;
  image_ = image;
  const auto own = this->ranks(host());
  local_.assign(own.begin(), own.end());
}

HostMap::HostMap(std::shared_ptr<const int[]> memory, size_t count, int rank, int size)
    : rank_(rank), image_(std::move(memory)), count_(count) {
  if (!isSound(size))
    throw Error(ErrorKind::System, "the first rank of the host has shared no map");
  const auto own = ranks(host());
  local_.assign(own.begin(), own.end());
}

/// Each rank is where it is said to be, so that no other is.
bool HostMap::isSound(int size) const {
  if (count_ < kHead || this->size() != size || hosts() < 1 || hosts() > size) return false;
  if (count_ != kHead + 3 * static_cast<size_t>(size) + static_cast<size_t>(hosts()) + 1) {
    return false;
  }
  if (first()[0] != 0 || first()[hosts()] != size || rails() < 1) return false;
  for (int h = 0; h < hosts(); ++h) {
    if (first()[h + 1] > size || first()[h + 1] - first()[h] < rails()) return false;
  }
  for (int r = 0; r < size; ++r) {
    const int h = hostOf(r);
    if (h < 0 || h >= hosts() || indexOf(r) < 0) return false;
    if (indexOf(r) >= first()[h + 1] - first()[h] || at(placeOf(r)) != r) return false;
  }
  return true;
}

std::string HostMap::shape() const {
  std::map<size_t, int> hostsOf;  // so many ranks
  for (int h = 0; h < hosts(); ++h) ++hostsOf[ranks(h).size()];
  std::string text;
  for (const auto& [ranks, hosts] : hostsOf) {
    text += (text.empty() ? "" : "+") + std::to_string(hosts) + "x" + std::to_string(ranks);
  }
  return text;
}

}  // namespace ctran
