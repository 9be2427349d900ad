#include "ctran/os/net_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "ctran/base/config.h"
#include "ctran/base/error.h"

namespace ctran {
namespace {

const ConfigString kInterfaces{
    "CTRAN_TCP_INTERFACES", "",
    "The network interfaces for traffic between hosts, separated by commas: a name (eth0), the "
    "beginning of names (ib*), or a network (10.1.0.0/16); '^' in front excludes. Without it, "
    "the one by which the route to each peer goes."};
const ConfigChoice kFamily{"CTRAN_TCP_FAMILY", "any|ipv4|ipv6", "any",
                           "The version of IP for traffic between hosts."};

bool sameBits(const std::array<uint8_t, 16>& a, const std::array<uint8_t, 16>& b, int bits) {
  for (int i = 0; i < 16 && bits > 0; ++i, bits -= 8) {
    const int shift = bits >= 8 ? 0 : 8 - bits;
    if (a[i] >> shift != b[i] >> shift) return false;
  }
  return true;
}

bool isLinkLocal(const NetAddress& address) {
  return address.family == 6 && address.ip[0] == 0xfe && (address.ip[1] & 0xc0) == 0x80;
}

uint8_t bitsOf(const sockaddr* mask, const NetAddress& address) {
  if (mask == nullptr) return address.family == 4 ? 32 : 128;
  sockaddr_storage whole{};  // the kernel leaves a mask's family out at times
  std::memcpy(&whole, mask, address.family == 4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  whole.ss_family = address.family == 4 ? AF_INET : AF_INET6;
  int bits = 0;
  for (const uint8_t byte : NetAddress::from(reinterpret_cast<sockaddr*>(&whole)).ip) {
    bits += std::popcount(byte);
  }
  return static_cast<uint8_t>(bits);
}

/// An entry such as "10.1.0.0/16".
NetAddress parseNetwork(const std::string& entry) {
  const size_t slash = entry.find('/');
  const std::string ip = entry.substr(0, slash);
  NetAddress network;
  if (::inet_pton(AF_INET, ip.c_str(), network.ip.data()) == 1) {
    network.family = 4;
  } else if (::inet_pton(AF_INET6, ip.c_str(), network.ip.data()) == 1) {
    network.family = 6;
  }
  const char* end = entry.data() + entry.size();
  const auto parsed = std::from_chars(entry.data() + slash + 1, end, network.prefix);
  if (network.family == 0 || parsed.ec != std::errc() || parsed.ptr != end ||
      network.prefix > (network.family == 4 ? 32 : 128)) {
    throw Error(ErrorKind::InvalidArgument,
                "CTRAN_TCP_INTERFACES: '" + entry + "' is no network such as 10.1.0.0/16", {}, {},
                std::string(kInterfaces.doc()));
  }
  return network;
}

bool matches(const std::string& entry, const std::string& name, const NetAddress& address) {
  if (entry.find('/') != std::string::npos) return parseNetwork(entry).sameNetwork(address);
  if (entry.back() == '*') return name.starts_with(entry.substr(0, entry.size() - 1));
  return entry == name;
}

/// Those for which it holds before the others.
template <class Predicate>
std::vector<NetAddress> inOrder(const std::vector<NetAddress>& addresses, Predicate predicate) {
  std::vector<NetAddress> first, last;
  for (const NetAddress& address : addresses) {
    (predicate(address) ? first : last).push_back(address);
  }
  first.insert(first.end(), last.begin(), last.end());
  return first;
}

}  // namespace

bool NetAddress::isLoopback() const {
  if (family == 4) return ip[0] == 127;
  return family == 6 && sameBits(ip, {}, 120) && ip[15] == 1;
}

bool NetAddress::sameNetwork(const NetAddress& other) const {
  return family != 0 && family == other.family && sameBits(ip, other.ip, prefix);
}

std::string NetAddress::text() const {
  if (family == 0) return "nowhere";
  char buffer[INET6_ADDRSTRLEN] = "?";
  ::inet_ntop(family == 4 ? AF_INET : AF_INET6, ip.data(), buffer, sizeof buffer);
  const std::string host = family == 4 ? buffer : "[" + std::string(buffer) + "]";
  return host + ":" + std::to_string(port);
}

NetAddress NetAddress::from(const sockaddr* address) {
  NetAddress result;
  if (address->sa_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(address);
    result.family = 4;
    result.port = ntohs(in->sin_port);
    std::memcpy(result.ip.data(), &in->sin_addr, 4);
  } else if (address->sa_family == AF_INET6) {
    const auto* in = reinterpret_cast<const sockaddr_in6*>(address);
    result.family = 6;
    result.port = ntohs(in->sin6_port);
    std::memcpy(result.ip.data(), &in->sin6_addr, 16);
    if (IN6_IS_ADDR_V4MAPPED(&in->sin6_addr)) {
      result.family = 4;
      std::copy_n(result.ip.begin() + 12, 4, result.ip.begin());
      std::fill(result.ip.begin() + 4, result.ip.end(), 0);
    }
  }
  return result;
}

socklen_t NetAddress::to(sockaddr_storage& address) const {
  address = {};
  if (family == 4) {
    auto* in = reinterpret_cast<sockaddr_in*>(&address);
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    std::memcpy(&in->sin_addr, ip.data(), 4);
    return sizeof *in;
  }
  auto* in = reinterpret_cast<sockaddr_in6*>(&address);
  in->sin6_family = AF_INET6;
  in->sin6_port = htons(port);
  std::memcpy(&in->sin6_addr, ip.data(), 16);
  return sizeof *in;
}

bool selectsInterface(const std::string& list, const std::string& name, const NetAddress& address) {
  bool includes = false, included = false, excluded = false;
  for (size_t at = 0; at < list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    std::string entry = list.substr(at, comma - at);
    at = comma + 1;
    std::erase(entry, ' ');
    const bool excludes = entry.starts_with('^');
    if (excludes) entry.erase(0, 1);
    if (entry.empty()) continue;
    const bool match = matches(entry, name, address);
    includes |= !excludes;
    (excludes ? excluded : included) |= match;
  }
  return !excluded && (included || !includes);
}

std::vector<NetAddress> localAddresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw systemError("getifaddrs", errno);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  const std::string selection = kInterfaces.get();
  const std::string_view family = kFamily.get();
  std::vector<NetAddress> addresses;
  std::string seen;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    NetAddress address = NetAddress::from(entry->ifa_addr);
    if (address.family == 0 || isLinkLocal(address)) continue;
    address.prefix = bitsOf(entry->ifa_netmask, address);
    if (seen.find(" " + std::string(entry->ifa_name) + ",") == std::string::npos) {
      seen += " " + std::string(entry->ifa_name) + ",";
    }
    if (family == "ipv4" && address.family != 4) continue;
    if (family == "ipv6" && address.family != 6) continue;
    if (selectsInterface(selection, entry->ifa_name, address)) addresses.push_back(address);
  }
  if (addresses.empty()) {
    // A machine without a network is no mistake of the user, who may want one host only.
    const bool chosen = kInterfaces.isSet() || kFamily.isSet();
    throw Error(chosen ? ErrorKind::InvalidArgument : ErrorKind::System,
                "no network interface that is up is left by CTRAN_TCP_INTERFACES='" + selection +
                    "' and CTRAN_TCP_FAMILY=" + std::string(family) +
                    "; there are:" + seen.substr(0, seen.empty() ? 0 : seen.size() - 1),
                {}, {}, std::string(kInterfaces.doc()));
  }
  return inOrder(addresses, [](const NetAddress& address) { return !address.isLoopback(); });
}

std::vector<NetAddress> byReach(const std::vector<NetAddress>& peer,
                                const std::vector<NetAddress>& own, bool sameMachine) {
  std::vector<NetAddress> order;
  for (const NetAddress& address : peer) {
    if (address.family != 0 && (!address.isLoopback() || sameMachine)) order.push_back(address);
  }
  const auto isNear = [&own](const NetAddress& address) {
    return !address.isLoopback() &&
           std::any_of(own.begin(), own.end(),
                       [&address](const NetAddress& mine) { return mine.sameNetwork(address); });
  };
  return inOrder(order, isNear);
}

bool interfacesAreNamed() { return kInterfaces.isSet(); }

std::vector<NetPath> pathsBetween(const std::vector<NetAddress>& own,
                                  const std::vector<NetAddress>& peer, const NetAddress& first) {
  struct Use {
    NetAddress address;
    int paths = 0;
  };
  const auto candidates = [&first](const std::vector<NetAddress>& addresses) {
    std::vector<Use> uses;
    for (const NetAddress& address : addresses) {
      if (address.family == first.family && address.isLoopback() == first.isLoopback()) {
        uses.push_back({address});
      }
    }
    return uses;
  };
  std::vector<Use> here = candidates(own), there = candidates(peer);
  // So that the path to it is made first.
  const auto it = std::find_if(there.begin(), there.end(),
                               [&first](const Use& use) { return use.address.ip == first.ip; });
  if (it != there.end()) std::rotate(there.begin(), it, it + 1);
  std::vector<NetPath> paths;
  for (const bool near : {true, false}) {
    const auto joins = [near](const Use& from, const Use& to) {
      return !near || from.address.sameNetwork(to.address);
    };
    const auto add = [&paths](Use* from, Use* to) {
      if (from == nullptr || to == nullptr) return;
      ++from->paths;
      ++to->paths;
      paths.push_back({from->address, to->address});
    };
    const auto leastUsed = [](std::vector<Use>& uses, auto fits) {
      Use* least = nullptr;
      for (Use& use : uses) {
        if (fits(use) && (least == nullptr || use.paths < least->paths)) least = &use;
      }
      return least;
    };
    for (Use& to : there) {
      add(leastUsed(here, [&](const Use& from) { return joins(from, to); }), &to);
    }
    for (Use& from : here) {
      if (from.paths > 0) continue;
      add(&from, leastUsed(there, [&](const Use& to) { return joins(from, to); }));
    }
    if (!paths.empty()) return paths;
  }
  return {{{}, first}};
}

}  // namespace ctran
