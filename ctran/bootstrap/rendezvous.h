#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ctran/bootstrap/handshake.h"

namespace ctran {

/// A Rendezvous lets ranks that know one address and one key exchange one string each: rank 0
/// listens there, collects all strings, and sends all of them to each rank. A string has at most
/// kMaxWord bytes.
class Rendezvous {
 public:
  static constexpr size_t kMaxWord = 1 << 16;

  /// Rank 0 listens at `addresses`; at the port of the address, if there is one address that has
  /// one.
  Rendezvous(std::vector<NetAddress> addresses, std::string_view key);

  const std::vector<NetAddress>& addresses() const { return acceptor_.addresses(); }

  /// Rank 0 calls this. Returns the strings of all ranks, by rank. Throws Error(Timeout), which
  /// names those that did not come, and Error(PeerLost), which names those that came and left.
  std::vector<std::string> gather(int size, const std::string& word, Deadline deadline,
                                  const Interrupt& interrupt = nullptr);

  /// Every other rank calls this, and waits until rank 0 listens at one of the addresses. Throws
  /// Error(Timeout), which names rank 0 or those for whom rank 0 waited in vain, Error(PeerLost),
  /// and Error(InvalidArgument) if rank 0 does not let it in.
  static std::vector<std::string> join(const std::vector<NetAddress>& addresses,
                                       std::string_view key, int rank, int size,
                                       const std::string& word, Deadline deadline,
                                       const Interrupt& interrupt = nullptr);

 private:
  const JobKey key_;
  Acceptor acceptor_;
};

/// Parses an address written "10.0.0.1:1234" or "[fd00::1]:1234". Throws Error(InvalidArgument).
NetAddress parseNetAddress(const std::string& text);

}  // namespace ctran
