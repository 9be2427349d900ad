#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ctran/bootstrap/handshake.h"

namespace ctran {

/// How ranks that know one address and one key tell each other a word each: rank 0 listens there,
/// hears all, and tells all. A word has at most kMaxWord bytes.
class Rendezvous {
 public:
  static constexpr size_t kMaxWord = 1 << 16;

  /// Rank 0 listens at `addresses`: at their port, if there is one address that has one.
  Rendezvous(std::vector<NetAddress> addresses, std::string_view key);

  const std::vector<NetAddress>& addresses() const { return doorman_.addresses(); }

  /// Rank 0's part: everybody's words, by rank. Throws Error(Timeout) that names who did not come,
  /// Error(PeerLost) that names who came and left.
  std::vector<std::string> gather(int size, const std::string& word, Deadline deadline,
                                  const Interrupt& interrupt = nullptr);

  /// The part of the others, who wait until rank 0 listens at one of the addresses. Throws
  /// Error(Timeout), Error(PeerLost), and Error(InvalidArgument) if rank 0 does not let it in.
  static std::vector<std::string> join(const std::vector<NetAddress>& addresses,
                                       std::string_view key, int rank, int size,
                                       const std::string& word, Deadline deadline,
                                       const Interrupt& interrupt = nullptr);

 private:
  const JobKey key_;
  Doorman doorman_;
};

/// The address that is written "10.0.0.1:1234" or "[fd00::1]:1234". Throws Error(InvalidArgument).
NetAddress parseNetAddress(const std::string& text);

}  // namespace ctran
