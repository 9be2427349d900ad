#pragma once

#include <sys/types.h>

#include <array>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/bootstrap/handshake.h"
#include "ctran/bootstrap/joining_ranks.h"
#include "ctran/bootstrap/places.h"
#include "ctran/os/process.h"
#include "ctran/os/unix_socket.h"

namespace ctran {

/// Where the leader (rank 0) of a new group listens, and the key that callers and leader prove to
/// each other. Whoever can read the store, or is a rank of the parent, can join; nobody else can.
struct LeaderAddress {
  std::array<char, 32> socketName{};
  JobKey key{};
  std::array<char, 128> host{};  ///< hostIdentity() of the leader
  /// For callers from other hosts; empty without a network.
  std::array<NetAddress, kMaxAddresses> addresses{};

  std::string serialize() const;
  static LeaderAddress parse(const std::string& text);

  /// Returns the address for callers on one of several occasions: the leader turns away callers on
  /// another one.
  LeaderAddress forOccasion(std::string_view occasion) const;

  /// Returns whether nobody listens there any more, as a process of `fromHost` sees it.
  bool isDeserted(const std::string& fromHost) const;
};

/// The ranks of one host that share memory. There are at most `kMost`; the next ranks of the host
/// are another group.
struct Neighbours {
  static constexpr int kMost = 64;
  int32_t count = 0;
  int32_t port = 0;  ///< port at which the first of them listens
  std::array<int32_t, kMost> ranks{};

  std::vector<int> list() const { return {ranks.begin(), ranks.begin() + count}; }
};

struct HostGroup;

/// The part of rank 0. It listens from construction on, then hands `memory` to every rank that
/// proves the key. Where ranks meet in a tree (BootstrapTree), ranks that have children have a
/// Leader, too.
class Leader {
 public:
  enum class Reach { OneHost, AllHosts };
  explicit Leader(Reach reach = Reach::OneHost, const std::string& host = hostIdentity());
  /// Listens for callers that know the key.
  Leader(Reach reach, const std::string& host, const JobKey& key);
  /// Listens for ranks of the same host, which know the key and the name.
  Leader(const JobKey& key, const std::string& socketName);
  const LeaderAddress& address() const { return address_; }

  /// Waits for ranks 1..size-1. `brings` is what this rank gives to all others. Callers that do not
  /// prove the key are turned away; silent ones do not keep others waiting. Throws Error, on this
  /// rank and on those that have come: Timeout naming those who did not come, PeerLost naming one
  /// that came and died, Mismatch naming one that was started with another size, System naming one
  /// that has no descriptor left. If the ranks are on several hosts, or too many for one, they
  /// learn each other's places instead of getting the memory and what they bring. Can be called
  /// again. If there are more ranks than it can hear, it hears its children, see BootstrapTree.
  HostGroup gather(int size, UniqueFd memory, Deadline deadline,
                   const Interrupt& interrupt = nullptr, UniqueFd brings = openOwnPidFd(),
                   std::string_view occasion = {});

  /// Makes a wait for a rank that has ended fail with PeerLost.
  void watch(HasEnded hasEnded) { hasEnded_ = std::move(hasEnded); }
  const HasEnded& watched() const { return hasEnded_; }

  /// Call these functions of Acceptor for the callers of this host and of others.
  void dismiss();
  std::set<std::string> takeStrangers();

  // What follows is for hearing the ranks below this one in the tree.
  Acceptor& local() { return *local_; }
  Acceptor* acceptor() { return acceptor_.get(); }

 private:
  LeaderAddress address_;
  std::unique_ptr<Acceptor> local_;     // for callers of this host
  std::unique_ptr<Acceptor> acceptor_;  // for callers of other hosts; null without a network
  HasEnded hasEnded_;
};

/// What every rank knows when the ranks are on several hosts.
struct Hosts {
  JobKey key{};
  Places places;  ///< of all ranks; empty where another rank of the host has them
  Neighbours neighbours;
  std::unique_ptr<Acceptor> acceptor;  ///< where this rank listens
  std::unique_ptr<Leader> local;       ///< where this rank listens for ranks of its host
};

/// Makes what rank `rank` of `size` has of its own: where it listens. `addresses` have no ports.
/// Throws Error(System).
Hosts hostsOfOwn(const JobKey& key, int rank, int size, const std::vector<NetAddress>& addresses);
/// Returns the neighbours of a rank.
Neighbours neighboursOf(const Places& places, int rank);
/// Returns the neighbours of a rank, without the port; `ofHost` are the ranks of its host, in
/// order.
Neighbours neighboursAmong(std::span<const int> ofHost, int rank);
/// Returns where the ranks of a host find a rank that has made its Hosts and listens at that port.
LeaderAddress localLeader(const JobKey& key, int rank, int port, const std::string& host);
/// `descriptorError` makes the error of a rank that has no descriptor left; the other one returns
/// whether an error, of this rank, is such an error.
Error descriptorError(int rank, const std::string& why = {});
bool isForWantOfDescriptors(const Error& error);

/// What every rank of a host shares after the hand-over.
struct HostGroup {
  std::unique_ptr<Hosts> hosts;   ///< set if there are several hosts; what follows is empty then
  UniqueFd memory;                ///< shared memory of the group
  std::vector<UniqueFd> brought;  ///< per rank, the descriptor that it brought
  std::vector<pid_t> pids;        ///< per rank, as it calls itself
  /// Per rank, see processToken(): equal for threads of one process.
  std::vector<uint64_t> processes;
};

/// Gives this rank's neighbours memory of the first of them, the leader (`memory`; the others pass
/// none), and each other's pidfds. Throws Error, which names ranks as `hosts` does.
HostGroup shareHost(Hosts& hosts, int rank, UniqueFd memory, Deadline deadline,
                    const Interrupt& interrupt = nullptr);

inline constexpr const char* kNoAnswer = "it did not answer in time";

/// Why a leader could not be joined.
struct NotJoined {
  std::string why;
  bool somebodyListens = false;  ///< somebody listens, and has turned this rank away
};

/// The part of any other rank. `leader` is rank 0; in a tree (BootstrapTree) it is the parent, with
/// the key of all ranks, and `own` is where this rank listens if it has children.
/// Returns none, and sets `notJoined`, if nobody listens at the address (any more), or only
/// somebody who turns this rank away or cannot prove the key; nothing is handed over then. Throws
/// Error, and sets `notJoined`, if it was not let in until the deadline; it waits a moment longer
/// than the deadline, so that the leader can say who is missing.
std::optional<HostGroup> join(const LeaderAddress& leader, int rank, int size, Deadline deadline,
                              const Interrupt& interrupt = nullptr, NotJoined* notJoined = nullptr,
                              const std::string& host = hostIdentity(),
                              UniqueFd brings = openOwnPidFd(), Leader* own = nullptr);

}  // namespace ctran
