#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ctran/os/net_address.h"

namespace ctran {

inline constexpr size_t kMaxAddresses = 8;

/// Where ranks are that have all of this in common. Travels as it is.
struct Site {
  std::array<std::byte, 16> host{};     ///< a hash of hostIdentity(): equal for ranks of a host,
  std::array<std::byte, 16> machine{};  ///< and one of bootIdentity()
  std::array<char, 64> name{};          ///< of the host, for people
  std::array<NetAddress, kMaxAddresses> addresses{};  ///< without ports

  /// `host`: hostIdentity().
  static Site at(const std::string& host, const std::vector<NetAddress>& addresses);
};

/// Where one rank is. Travels as it is.
struct Place {
  int32_t rank = 0;
  uint32_t site = 0;  ///< its number among those beside it
  uint32_t pid = 0;
  uint16_t port = 0;  ///< at which the rank listens, on all addresses
  uint16_t unused = 0;
};

/// Where ranks are, all of a communicator or some, in their order: sixteen bytes for a rank, some
/// hundred for a host. Copies share their memory.
class Places {
 public:
  Places() = default;
  Places(Place place, const Site& site);
  /// Each rank is in one of the parts.
  static Places merged(std::span<const Places> parts);
  /// Of bytes that rank `from` has sent. Throws Error(Mismatch) unless they list ranks below
  /// `size`, each once and in order.
  static Places received(std::vector<std::byte> bytes, int size, int from);
  /// Of bytes in memory that this rank shares with the one that has put them there. Throws
  /// Error(System) unless they list all ranks below `size`.
  static Places shared(std::shared_ptr<const void> owner, std::span<const std::byte> bytes,
                       int size);
  /// The most that those of so many ranks take.
  static size_t mostBytes(int ranks);

  std::span<const std::byte> bytes() const { return bytes_; }
  int size() const { return bytes_.empty() ? 0 : static_cast<int>(head().ranks); }
  const Place& operator[](int index) const { return places()[index]; }
  const Site& siteOf(int index) const { return sites()[places()[index].site]; }

  // What follows is of all ranks of a communicator.

  std::vector<NetAddress> addressesOf(int rank) const;
  bool areOnOneMachine(int a, int b) const { return siteOf(a).machine == siteOf(b).machine; }
  std::string describe(int rank) const;  ///< "node7 (pid 12)"
  /// Per rank a number that is the same for ranks of a host.
  std::vector<int> hosts() const;
  /// Those of the listed ranks, who listen at `ports` now, as ranks 0, 1, ... `hosts`: per listed
  /// rank a number, equal where ranks are to count as being on one host; empty: as they are.
  Places selected(std::span<const int> ranks, std::span<const uint16_t> ports,
                  std::span<const int> hosts = {}) const;

 private:
  struct Head {
    uint32_t ranks, sites;
  };
  Places(std::span<const Place> places, std::span<const Site> sites);
  /// Ranks below `size`, each once and in order.
  bool makeSense(int size) const;
  const Head& head() const { return *reinterpret_cast<const Head*>(bytes_.data()); }
  const Place* places() const {
    return reinterpret_cast<const Place*>(bytes_.data() + sizeof(Head));
  }
  const Site* sites() const { return reinterpret_cast<const Site*>(places() + head().ranks); }

  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

}  // namespace ctran
