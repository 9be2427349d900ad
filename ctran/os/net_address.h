#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace ctran {

/// An IPv4 or IPv6 address with a port, of a fixed size, so that it travels as it is.
struct NetAddress {
  uint8_t family = 0;  ///< 4, 6; 0: none
  uint8_t prefix = 0;  ///< bits that name the network it is in, as its interface has it
  uint16_t port = 0;   ///< host byte order
  std::array<uint8_t, 16> ip{};

  bool isLoopback() const;
  bool sameNetwork(const NetAddress& other) const;  ///< by this address' prefix
  std::string text() const;                         ///< "10.0.0.1:1234", "[fd00::1]:1234"

  /// One of IPv4 that is written as one of IPv6 is taken for what it is.
  static NetAddress from(const sockaddr* address);
  socklen_t to(sockaddr_storage& address) const;
};

/// The addresses of this host at which others may find it, those of loopback last. Which: as
/// CTRAN_TCP_INTERFACES and CTRAN_TCP_FAMILY say. Throws Error(InvalidArgument) when they leave
/// none, Error(System) when there is none at all.
std::vector<NetAddress> localAddresses();

/// The addresses of a peer in the order in which to try them: those in a network of this host
/// first; those of loopback last, and only if the peer may be on this machine.
std::vector<NetAddress> byReach(const std::vector<NetAddress>& peer,
                                const std::vector<NetAddress>& own, bool sameMachine);

/// From an address of this host to one of a peer's.
struct NetPath {
  NetAddress from, to;
};

/// One path for each interface of the host that has more of them, within the networks that both are
/// in, or, if there is none, between any two; first one to `first`. All of its version of IP.
std::vector<NetPath> pathsBetween(const std::vector<NetAddress>& own,
                                  const std::vector<NetAddress>& peer, const NetAddress& first);

/// Whether CTRAN_TCP_INTERFACES says which to use.
bool interfacesAreNamed();

/// What CTRAN_TCP_INTERFACES means for one interface: whether `list` selects it. Entries are
/// separated by commas: a name, the beginning of names followed by '*', a network such as
/// "10.1.0.0/16"; '^' in front excludes. Without an entry that includes, all but the excluded are
/// selected. Throws Error(InvalidArgument) for an entry that is none of these.
bool selectsInterface(const std::string& list, const std::string& name, const NetAddress& address);

}  // namespace ctran
