#pragma once

#include <sys/types.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/bootstrap/handshake.h"
#include "ctran/os/process.h"
#include "ctran/os/unix_socket.h"

namespace ctran {

inline constexpr size_t kMaxAddresses = 8;

/// Where the leader (rank 0) of a new group listens, and the key that callers and leader prove to
/// each other. Whoever can read the store, or is a rank of the parent, can join; nobody else can.
struct LeaderAddress {
  std::array<char, 32> socketName{};
  JobKey key{};
  std::array<char, 128> host{};                       ///< hostIdentity() of the leader
  std::array<NetAddress, kMaxAddresses> addresses{};  ///< for other hosts; none if it has none

  std::string serialize() const;
  static LeaderAddress parse(const std::string& text);

  /// As it is for callers on one of several occasions: the leader turns those of others away.
  LeaderAddress forOccasion(std::string_view occasion) const;
};

/// Where one rank of several hosts is.
struct Place {
  std::array<char, 128> host{};  ///< hostIdentity(); ranks with the same share a host
  std::array<NetAddress, kMaxAddresses> addresses{};
  std::array<char, 64> process{};     ///< processName(), for people
  std::array<char, 32> socketName{};  ///< where ranks of the same host can reach it: see shareHost
};

struct HostGroup;

/// Rank 0: listens from construction on, then hands `memory` to everybody who proves the key.
class Leader {
 public:
  enum class Reach { OneHost, AllHosts };
  explicit Leader(Reach reach = Reach::OneHost, const std::string& host = hostIdentity());
  /// For ranks of the same host, who know the key already.
  explicit Leader(const JobKey& key);
  const LeaderAddress& address() const { return address_; }

  /// Waits for ranks 1..size-1. `brings` is what this rank gives all others. Callers that do not
  /// prove the key are turned away, silent ones do not keep others waiting. Throws Error, on this
  /// rank and on those that have come: Timeout naming those who did not come, PeerLost naming one
  /// that came and died, Mismatch naming one that was started with another size, System naming one
  /// that has no descriptor left. Ranks on several hosts, or too many for one, get to know
  /// each other's places instead of the memory and of what they bring. Can be called again.
  HostGroup gather(int size, UniqueFd memory, Deadline deadline,
                   const Interrupt& interrupt = nullptr, UniqueFd brings = openOwnPidFd(),
                   std::string_view occasion = {});

 private:
  LeaderAddress address_;
  std::unique_ptr<Doorman> local_;    // for callers of this host,
  std::unique_ptr<Doorman> doorman_;  // and of others; null if there is no network
};

/// What every rank knows when the ranks are on several hosts.
struct Hosts {
  JobKey key{};
  std::vector<Place> places;         ///< per rank
  std::unique_ptr<Doorman> doorman;  ///< where this rank listens
  std::unique_ptr<Leader> local;     ///< the same for ranks of its host
};

/// What every rank of a host shares after the hand-over.
struct HostGroup {
  std::unique_ptr<Hosts> hosts;     ///< if there are several; what follows is empty then
  UniqueFd memory;                  ///< shared memory of the group
  std::vector<UniqueFd> brought;    ///< per rank, the descriptor that it brought
  std::vector<pid_t> pids;          ///< per rank, as it calls itself
  std::vector<uint64_t> processes;  ///< per rank, see processToken(): equal for threads of one
};

/// Gives the ranks `local` of several hosts, which share this one, `bytes` of fresh memory, and
/// each other's pidfds. The first of them leads. Throws Error, which names ranks as `local` does.
HostGroup shareHost(Hosts& hosts, const std::vector<int>& local, int rank, size_t bytes,
                    Deadline deadline, const Interrupt& interrupt = nullptr);

/// Why a leader could not be joined.
struct NotJoined {
  std::string why;
  bool somebodyListens = false;  ///< who has turned this rank away
};

/// Any other rank. Nothing, and `notJoined`, when nobody listens at the address (any more), or only
/// somebody who turns this rank away, or who cannot prove the key; nothing is handed over then.
/// Throws Error; it waits a moment longer than the deadline, so that the leader can say who is
/// missing.
std::optional<HostGroup> join(const LeaderAddress& leader, int rank, int size, Deadline deadline,
                              const Interrupt& interrupt = nullptr, NotJoined* notJoined = nullptr,
                              const std::string& host = hostIdentity(),
                              UniqueFd brings = openOwnPidFd());

}  // namespace ctran
