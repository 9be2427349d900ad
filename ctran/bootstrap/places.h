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

/// What ranks have in common that are at one site. It is sent as it is in memory.
struct Site {
  std::array<std::byte, 16> host{};     ///< a hash of hostIdentity(): equal for ranks of a host,
  std::array<std::byte, 16> machine{};  ///< and one of bootIdentity()
  std::array<char, 64> name{};          ///< name of the host, for people
  std::array<NetAddress, kMaxAddresses> addresses{};  ///< have no ports

  /// `host` is hostIdentity().
  static Site at(const std::string& host, const std::vector<NetAddress>& addresses);
};

/// Where one rank is. It is sent as it is in memory.
struct Place {
  int32_t rank = 0;
  uint32_t site = 0;  ///< index of the rank's site in the list that holds the place
  uint32_t pid = 0;
  uint16_t port = 0;  ///< port at which the rank listens, on all addresses
  uint16_t unused = 0;
};

/// Where ranks are, all of a communicator or some, in their order: sixteen bytes for a rank, some
/// hundred for a host. Copies share their memory.
class Places {
 public:
  Places() = default;
  Places(Place place, const Site& site);
  /// Merges parts; each rank is in one of them.
  static Places merged(std::span<const Places> parts);
  /// Reads bytes that rank `from` has sent. Throws Error(Mismatch) unless they list ranks below
  /// `size`, each once and in order.
  static Places received(std::vector<std::byte> bytes, int size, int from);
  /// Reads bytes in memory that this rank shares with the rank that has put them there. Throws
  /// Error(System) unless they list all ranks below `size`.
  static Places shared(std::shared_ptr<const void> owner, std::span<const std::byte> bytes,
                       int size);
  /// Returns the most bytes that the places of `ranks` ranks take.
  static size_t mostBytes(int ranks);

  std::span<const std::byte> bytes() const { return bytes_; }
  int size() const { return bytes_.empty() ? 0 : static_cast<int>(head().ranks); }
  const Place& operator[](int index) const { return places()[index]; }
  const Site& siteOf(int index) const { return sites()[places()[index].site]; }

  // What follows is for places of all ranks of a communicator.

  std::vector<NetAddress> addressesOf(int rank) const;
  bool areOnOneMachine(int a, int b) const { return siteOf(a).machine == siteOf(b).machine; }
  std::string describe(int rank) const;  ///< "node7 (pid 12)"
  /// Returns per rank a number that is the same for ranks of a host.
  std::vector<int> hosts() const;
  /// Returns the places of the listed ranks, which listen at `ports` now, as ranks 0, 1, ...
  /// `hosts` has a number per listed rank, equal where ranks are to count as being on one host;
  /// empty: as they are.
  Places selected(std::span<const int> ranks, std::span<const uint16_t> ports,
                  std::span<const int> hosts = {}) const;

 private:
  struct Head {
    uint32_t ranks, sites;
  };
  Places(std::span<const Place> places, std::span<const Site> sites);
  /// Returns whether these are ranks below `size`, each once and in order.
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
