// The messages between a leader and those who join it, once the key is proved, and the errors that
// follow from them.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/base/text.h"
#include "ctran/bootstrap/bootstrap_tree.h"
#include "ctran/bootstrap/hand_over.h"
#include "ctran/bootstrap/joining_ranks.h"

namespace ctran::hand_over {

/// Changes with the messages below and with the arena's layout. Every version's HostHello starts
/// with its protocol, and every version's Answer with protocol and reply.
inline constexpr uint32_t kProtocol = 0xc7a20006;
inline constexpr int kMaxRanks = Neighbours::kMost;
inline constexpr std::chrono::milliseconds kGrace{500};

/// Sent by a rank of the same host, once it and the leader have proved the key to each other, with
/// the descriptor that it brings.
struct HostHello {
  uint32_t protocol;
  int32_t rank;
  int32_t size;
  int32_t pid;
  uint64_t process;
};

enum class Reply : uint32_t {
  Welcome,
  OtherVersion,
  OtherSize,
  NoSuchRank,
  RankTaken,
  Missing,
  SeveralHosts,  ///< each rank answers with OnePlace, and gets a Welcome and the places of all
  Lost,          ///< a rank that had joined has died
  NoDescriptor,  ///< a rank has no descriptor left
};

struct Answer {
  uint32_t protocol;
  Reply reply;
  uint64_t detail;  ///< OtherSize: the leader's; Missing: bit per rank that did not come; Lost,
                    ///< NoDescriptor: the rank; Welcome after SeveralHosts: bytes of the places
};

struct OnePlace {
  Place place;
  Site site;
};

/// Follows a Welcome, with the descriptors. Each rank answers with a Receipt, and gets another
/// Welcome when all ranks have everything.
struct Roster {
  int32_t pids[kMaxRanks];
  uint64_t processes[kMaxRanks];
};

enum class Receipt : uint8_t { All, NoDescriptor };

static_assert(std::is_trivially_copyable_v<LeaderAddress>);

inline constexpr const char* kOp = "new_comm";
inline constexpr const char* kMissingHint =
    "see whether they started, with the same world size, name and store";

inline std::string textOf(std::span<const char> text) { return std::string(boundedText(text)); }

/// Sends an answer. Does nothing if the other end has gone.
void answer(const UniqueFd& socket, Reply reply, uint64_t detail);

/// `missing` has a bit per rank.
Error missingError(int waiting, uint64_t missing);
Error missingError(int waiting, const std::vector<int>& ranks);
/// `who` is the rank, and its process if that is known.
Error lostError(int rank, const std::string& who);
/// Makes the error for a rank that has ended before it joined.
Error endedError(int rank);
Error sizeError(int rank, int size, int leaderSize);
Error versionError(int rank);
/// Returns the error that an answer means which turns a rank away; none for any other answer.
std::optional<Error> refusalOf(const Answer& answer, int rank, int size);

/// What this rank has of its own, and its place.
struct OwnHosts {
  std::unique_ptr<Hosts> hosts;
  Places places;  ///< place of this rank alone
};
OwnHosts makeHosts(const JobKey& key, int rank, int size, const std::string& host);

/// Groups the ranks of each host that share memory.
class NeighbourLists {
 public:
  explicit NeighbourLists(const Places& places);
  Neighbours of(int rank) const;

 private:
  const Places& places_;
  std::vector<int> hosts_;               // per rank
  std::vector<std::vector<int>> ranks_;  // per host
};

/// Returns where ranks of a host find the rank that listens at that port on the network.
std::string localSocketName(const JobKey& key, int rank, int port);

/// Does the work of Leader::gather. `acceptor` is null without a network.
HostGroup gather(Acceptor& local, Acceptor* acceptor, const LeaderAddress& address, int size,
                 UniqueFd memory, UniqueFd brings, Deadline deadline, const Interrupt& interrupt,
                 const HasEnded& hasEnded);

/// Does the work of a rank that meets others in a tree. `joining` are those below it; null if there
/// are none. `parent` is the connection to the rank above it; none for rank 0. Throws Error, on all
/// ranks that can be told, for the first thing that goes wrong, as Leader::gather does.
HostGroup meetInTree(JoiningRanks* joining, const BootstrapTree& tree, Socket parent,
                     const JobKey& key, const std::string& host, Deadline deadline,
                     const Interrupt& interrupt);

}  // namespace ctran::hand_over
