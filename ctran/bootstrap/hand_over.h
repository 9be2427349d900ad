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
#include "ctran/bootstrap/callers.h"
#include "ctran/bootstrap/handshake.h"
#include "ctran/bootstrap/places.h"
#include "ctran/os/process.h"
#include "ctran/os/unix_socket.h"

namespace ctran {

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

  /// Whether nobody listens there any more, as a process of `fromHost` sees it.
  bool isDeserted(const std::string& fromHost) const;
};

/// The ranks of one host that share memory; at most so many, the next are others.
struct Neighbours {
  static constexpr int kMost = 64;
  int32_t count = 0;
  int32_t port = 0;  ///< at which the first of them listens
  std::array<int32_t, kMost> ranks{};

  std::vector<int> list() const { return {ranks.begin(), ranks.begin() + count}; }
};

struct HostGroup;

/// Rank 0: listens from construction on, then hands `memory` to everybody who proves the key. Where
/// ranks meet in a tree (MeetingTree), those that hear others have one, too.
class Leader {
 public:
  enum class Reach { OneHost, AllHosts };
  explicit Leader(Reach reach = Reach::OneHost, const std::string& host = hostIdentity());
  /// For callers that know the key.
  Leader(Reach reach, const std::string& host, const JobKey& key);
  /// For ranks of the same host, who know the key and the name.
  Leader(const JobKey& key, const std::string& socketName);
  const LeaderAddress& address() const { return address_; }

  /// Waits for ranks 1..size-1. `brings` is what this rank gives all others. Callers that do not
  /// prove the key are turned away, silent ones do not keep others waiting. Throws Error, on this
  /// rank and on those that have come: Timeout naming those who did not come, PeerLost naming one
  /// that came and died, Mismatch naming one that was started with another size, System naming one
  /// that has no descriptor left. Ranks on several hosts, or too many for one, get to know
  /// each other's places instead of the memory and of what they bring. Can be called again. Of more
  /// ranks than it can hear, MeetingTree, it hears its children.
  HostGroup gather(int size, UniqueFd memory, Deadline deadline,
                   const Interrupt& interrupt = nullptr, UniqueFd brings = openOwnPidFd(),
                   std::string_view occasion = {});

  /// Ends a wait for a rank that has ended, with PeerLost.
  void watch(HasEnded hasEnded) { hasEnded_ = std::move(hasEnded); }
  const HasEnded& watched() const { return hasEnded_; }

  /// Doorman's, of callers of this host and of others.
  void dismiss();
  std::set<std::string> takeStrangers();

  // For the ranks below this one in the tree.
  Doorman& local() { return *local_; }
  Doorman* doorman() { return doorman_.get(); }

 private:
  LeaderAddress address_;
  std::unique_ptr<Doorman> local_;    // for callers of this host,
  std::unique_ptr<Doorman> doorman_;  // and of others; null if there is no network
  HasEnded hasEnded_;
};

/// What every rank knows when the ranks are on several hosts.
struct Hosts {
  JobKey key{};
  Places places;  ///< of all ranks; none where another rank of the host has them
  Neighbours neighbours;
  std::unique_ptr<Doorman> doorman;  ///< where this rank listens
  std::unique_ptr<Leader> local;     ///< the same for ranks of its host
};

/// What rank `rank` of so many has of its own: where it listens. Throws Error(System).
/// `addresses`: without ports.
Hosts hostsOfOwn(const JobKey& key, int rank, int size, const std::vector<NetAddress>& addresses);
/// Who is a rank's neighbour.
Neighbours neighboursOf(const Places& places, int rank);
/// The same of the ranks of its host, in order, without the port.
Neighbours neighboursAmong(std::span<const int> ofHost, int rank);
/// Where the ranks of a host find a rank that has made its Hosts, and listens at that port.
LeaderAddress localLeader(const JobKey& key, int rank, int port, const std::string& host);
/// That a rank has no descriptor left; and whether an error, of this rank, says so.
Error descriptorError(int rank, const std::string& why = {});
bool isForWantOfDescriptors(const Error& error);

/// What every rank of a host shares after the hand-over.
struct HostGroup {
  std::unique_ptr<Hosts> hosts;     ///< if there are several; what follows is empty then
  UniqueFd memory;                  ///< shared memory of the group
  std::vector<UniqueFd> brought;    ///< per rank, the descriptor that it brought
  std::vector<pid_t> pids;          ///< per rank, as it calls itself
  std::vector<uint64_t> processes;  ///< per rank, see processToken(): equal for threads of one
};

/// Gives this rank's neighbours memory of the first of them, who leads (`memory`; the others pass
/// none), and each other's pidfds. Throws Error, which names ranks as `hosts` does.
HostGroup shareHost(Hosts& hosts, int rank, UniqueFd memory, Deadline deadline,
                    const Interrupt& interrupt = nullptr);

inline constexpr const char* kNoAnswer = "it did not answer in time";

/// Why a leader could not be joined.
struct NotJoined {
  std::string why;
  bool somebodyListens = false;  ///< who has turned this rank away
};

/// Any other rank. `leader`: rank 0; in a tree (MeetingTree) the parent, with the key of all ranks,
/// and `own` is where this rank listens if it has children. Nothing, and `notJoined`, when nobody
/// listens at the address (any more), or only somebody who turns this rank away, or who cannot
/// prove the key; nothing is handed over then. Throws Error, and sets
/// `notJoined` if it was not let in until the deadline; it waits a moment longer than the
/// deadline, so that the leader can say who is missing.
std::optional<HostGroup> join(const LeaderAddress& leader, int rank, int size, Deadline deadline,
                              const Interrupt& interrupt = nullptr, NotJoined* notJoined = nullptr,
                              const std::string& host = hostIdentity(),
                              UniqueFd brings = openOwnPidFd(), Leader* own = nullptr);

}  // namespace ctran
