#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "ctran/os/process.h"
#include "ctran/os/unix_socket.h"

namespace ctran {

/// Where the leader (rank 0) of a new group listens, and the proof that a caller was told so.
/// Whoever can read the store, or is a rank of the parent, can join; nobody else can.
struct LeaderAddress {
  std::array<char, 32> socketName{};
  std::array<std::byte, 32> key{};
  std::array<char, 64> host{};  ///< hostIdentity() of the leader

  std::string serialize() const;
  static LeaderAddress parse(const std::string& text);
};

/// What every rank of a host shares after the hand-over.
struct HostGroup {
  UniqueFd memory;                  ///< shared memory of the group
  std::vector<UniqueFd> brought;    ///< per rank, the descriptor that it brought
  std::vector<pid_t> pids;          ///< per rank, as it calls itself
  std::vector<uint64_t> processes;  ///< per rank, see processToken(): equal for threads of one
};

/// Rank 0: listens from construction on, then hands `memory` to everybody who proves the key.
class Leader {
 public:
  Leader();
  const LeaderAddress& address() const { return address_; }

  /// Waits for ranks 1..size-1. `brings` is what this rank gives all others. Callers that do not
  /// prove the key are turned away, silent ones do not keep others waiting. Throws Error: Timeout
  /// naming those who did not come, PeerLost naming one that came and died, Mismatch naming one
  /// that was started with another size.
  HostGroup gather(int size, UniqueFd memory, Deadline deadline,
                   const Interrupt& interrupt = nullptr, UniqueFd brings = openOwnPidFd());

 private:
  LeaderAddress address_;
  UniqueFd listener_;
};

/// Any other rank. Nothing when nobody listens at the address (any more). Throws Error; it waits a
/// moment longer than the deadline, so that the leader can say who is missing.
std::optional<HostGroup> join(const LeaderAddress& leader, int rank, int size, Deadline deadline,
                              const Interrupt& interrupt = nullptr,
                              UniqueFd brings = openOwnPidFd());

}  // namespace ctran
