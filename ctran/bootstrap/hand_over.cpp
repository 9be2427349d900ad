#include "ctran/bootstrap/hand_over.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "ctran/base/error.h"
#include "ctran/os/process.h"

namespace ctran {
namespace {

/// Changes with the messages below and with the arena's layout. Every version's Hello starts with
/// key and protocol, and every version's Answer with protocol and verdict.
constexpr uint32_t kProtocol = 0xc7a20002;
constexpr int kMaxRanks = 64;
constexpr size_t kMaxUnheard = 64;
constexpr std::chrono::milliseconds kGrace{500};

struct Hello {
  std::array<std::byte, 32> key;
  uint32_t protocol;
  int32_t rank;
  int32_t size;
  int32_t pid;
  uint64_t process;
};

enum class Verdict : uint32_t { Welcome, OtherVersion, OtherSize, NoSuchRank, RankTaken, Missing };

struct Answer {
  uint32_t protocol;
  Verdict verdict;
  uint64_t detail;  ///< OtherSize: the leader's; Missing: bit per rank that did not come
};

/// Follows a welcome, with the descriptors.
struct Roster {
  int32_t pids[kMaxRanks];
  uint64_t processes[kMaxRanks];
};

static_assert(std::is_trivially_copyable_v<LeaderAddress>);

constexpr const char* kOp = "new_comm";
constexpr const char* kMissingHint =
    "see whether they started, with the same world size, name and store";

template <class T>
std::span<std::byte> bytesOf(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

bool sameKey(const std::array<std::byte, 32>& a, const std::array<std::byte, 32>& b) {
  std::byte difference{};  // every byte is looked at, so that the time tells nothing
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{};
}

Error missingError(int waiting, uint64_t missing) {
  std::vector<int> ranks;
  std::string text;
  for (; missing != 0; missing &= missing - 1) {
    ranks.push_back(std::countr_zero(missing));
    text += (text.empty() ? "" : ", ") + std::to_string(ranks.back());
  }
  return Error(ErrorKind::Timeout,
               "rank " + std::to_string(waiting) + " waited for rank" +
                   (ranks.size() == 1 ? " " : "s ") + text + ", who did not join",
               ranks, kOp, kMissingHint);
}

Error sizeError(int rank, int size, int leaderSize) {
  return Error(ErrorKind::Mismatch,
               "rank " + std::to_string(rank) + " was started with world size " +
                   std::to_string(size) + ", rank 0 with " + std::to_string(leaderSize),
               {0, rank}, kOp, "start all ranks with the same world size");
}

Error versionError(int rank) {
  return Error(
      ErrorKind::System,
      "rank 0 and rank " + std::to_string(rank) + " run different versions of this library",
      {0, rank}, kOp);
}

/// The callers of a leader.
class Reception {
 public:
  Reception(const UniqueFd& listener, const std::array<std::byte, 32>& key, int size,
            UniqueFd memory, UniqueFd brings)
      : listener_(listener), key_(key), joined_(size) {
    group_.memory = std::move(memory);
    group_.brought.resize(size);
    group_.brought[0] = std::move(brings);
    group_.pids.assign(size, ::getpid());
    group_.processes.assign(size, processToken());
  }

  /// Hears whoever calls, until all have joined.
  HostGroup run(Deadline deadline, const Interrupt& interrupt) {
    while (missing() != 0) {
      std::vector<int> sockets{listener_.get()};
      std::vector<int> ranks;
      for (const UniqueFd& socket : unheard_) sockets.push_back(socket.get());
      const size_t unheard = unheard_.size();
      for (int r = 1; r < size(); ++r) {
        if (!joined_[r]) continue;
        sockets.push_back(joined_[r].get());
        ranks.push_back(r);
      }
      std::vector<size_t> readable;
      try {
        readable = waitReadable(sockets, deadline, interrupt);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::Timeout) throw;
        const uint64_t absent = missing();
        for (const int r : ranks) answer(joined_[r], Verdict::Missing, absent);
        throw missingError(0, absent);
      }
      // From the back, so that removing one does not move the others.
      for (size_t i = readable.size(); i-- > 0;) {
        const size_t index = readable[i];
        if (index == 0) {
          welcomeCaller();
        } else if (index <= unheard) {
          UniqueFd socket = std::move(unheard_[index - 1]);
          unheard_.erase(unheard_.begin() + static_cast<std::ptrdiff_t>(index) - 1);
          hear(std::move(socket));
        } else {
          lose(ranks[index - 1 - unheard]);
        }
      }
    }
    handOver(deadline);
    return std::move(group_);
  }

 private:
  int size() const { return static_cast<int>(joined_.size()); }

  uint64_t missing() const {
    uint64_t bits = 0;
    for (int r = 1; r < size(); ++r) {
      if (!joined_[r]) bits |= uint64_t{1} << r;
    }
    return bits;
  }

  void welcomeCaller() {
    UniqueFd socket;
    try {
      socket = acceptFrom(listener_, Deadline{});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Timeout) throw;
      return;  // it has hung up already
    }
    if (!peerIsTrusted(socket)) return;
    unheard_.push_back(std::move(socket));
    // A caller that says nothing must not keep the others out.
    if (unheard_.size() > kMaxUnheard) unheard_.erase(unheard_.begin());
  }

  void hear(UniqueFd socket) {
    Hello hello{};
    std::vector<UniqueFd> fds;
    try {
      fds = receiveAll(socket, bytesOf(hello), 1, Deadline{});  // it is sent in one piece
    } catch (const Error&) {
      return;
    }
    if (!sameKey(hello.key, key_)) return;  // a stranger; what follows are errors of our own ranks
    if (hello.protocol != kProtocol) {
      answer(socket, Verdict::OtherVersion, 0);
      throw versionError(hello.rank);
    }
    if (hello.size != size()) {
      answer(socket, Verdict::OtherSize, static_cast<uint64_t>(size()));
      throw sizeError(hello.rank, hello.size, size());
    }
    if (hello.rank < 1 || hello.rank >= size()) return answer(socket, Verdict::NoSuchRank, 0);
    if (joined_[hello.rank]) return answer(socket, Verdict::RankTaken, 0);
    group_.brought[hello.rank] = std::move(fds[0]);
    group_.pids[hello.rank] = hello.pid;
    group_.processes[hello.rank] = hello.process;
    joined_[hello.rank] = std::move(socket);
  }

  /// A rank that has joined has nothing to say: it has hung up.
  [[noreturn]] void lose(int rank) {
    throw Error(ErrorKind::PeerLost,
                "rank " + std::to_string(rank) + " (pid " + std::to_string(group_.pids[rank]) +
                    ") died, or gave up, while others were still joining",
                {rank}, kOp, "see its output for the reason");
  }

  static void answer(const UniqueFd& socket, Verdict verdict, uint64_t detail) {
    Answer message{kProtocol, verdict, detail};
    try {
      sendAll(socket, bytesOf(message), {}, Deadline{});
    } catch (const Error&) {
      // It is gone, and needs no answer.
    }
  }

  void handOver(Deadline deadline) {
    std::vector<int> fds{group_.memory.get()};
    for (const UniqueFd& fd : group_.brought) fds.push_back(fd.get());
    Roster roster{};
    std::copy(group_.pids.begin(), group_.pids.end(), roster.pids);
    std::copy(group_.processes.begin(), group_.processes.end(), roster.processes);
    for (int r = 1; r < size(); ++r) {
      Answer welcome{kProtocol, Verdict::Welcome, 0};
      try {
        sendAll(joined_[r], bytesOf(welcome), {}, deadline);
        sendAll(joined_[r], bytesOf(roster), fds, deadline);
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::PeerLost) lose(r);
        throw;
      }
    }
  }

  const UniqueFd& listener_;
  const std::array<std::byte, 32>& key_;
  HostGroup group_;
  std::vector<UniqueFd> unheard_;  // connected, have not said who they are; oldest first
  std::vector<UniqueFd> joined_;   // by rank
};

}  // namespace

std::string LeaderAddress::serialize() const {
  return {reinterpret_cast<const char*>(this), sizeof *this};
}

LeaderAddress LeaderAddress::parse(const std::string& text) {
  LeaderAddress address;
  if (text.size() != sizeof address) {
    throw Error(ErrorKind::System, "the store holds something else than a leader's address", {}, {},
                "give every communicator a store prefix or a name of its own");
  }
  std::memcpy(&address, text.data(), sizeof address);
  return address;
}

Leader::Leader() {
  std::array<std::byte, 12> random;
  fillRandom(random.data(), random.size());
  std::string name = "ctran-";
  for (std::byte b : random) {
    name += "0123456789abcdef"[static_cast<int>(b) >> 4];
    name += "0123456789abcdef"[static_cast<int>(b) & 15];
  }
  std::copy(name.begin(), name.end(), address_.socketName.begin());
  fillRandom(address_.key.data(), address_.key.size());
  const std::string host = hostIdentity();
  std::copy_n(host.begin(), std::min(host.size(), address_.host.size()), address_.host.begin());
  listener_ = listenAbstract(name, kMaxRanks);
}

HostGroup Leader::gather(int size, UniqueFd memory, Deadline deadline, const Interrupt& interrupt,
                         UniqueFd brings) {
  return Reception(listener_, address_.key, size, std::move(memory), std::move(brings))
      .run(deadline, interrupt);
}

std::optional<HostGroup> join(const LeaderAddress& leader, int rank, int size, Deadline deadline,
                              const Interrupt& interrupt, UniqueFd brings) {
  const std::string self = "rank " + std::to_string(rank);
  const std::string host = hostIdentity();
  if (std::strncmp(host.c_str(), leader.host.data(), leader.host.size()) != 0) {
    throw Error(ErrorKind::Unsupported,
                self + " on " + processName() +
                    " runs on another host, or in another network namespace, than rank 0",
                {0, rank}, kOp, "this version connects the ranks of one host only");
  }
  const std::string name(leader.socketName.data(),
                         ::strnlen(leader.socketName.data(), leader.socketName.size()));
  const UniqueFd socket = connectAbstract(name, deadline);
  if (!socket) return std::nullopt;

  const int bringsFd[] = {brings.get()};
  Hello hello{leader.key, kProtocol, rank, size, ::getpid(), processToken()};
  Answer answer{};
  Roster roster{};
  std::vector<UniqueFd> fds;
  try {
    sendAll(socket, bytesOf(hello), bringsFd, deadline);
    receiveAll(socket, bytesOf(answer), 0, deadline + kGrace, interrupt);
    if (answer.protocol == kProtocol && answer.verdict == Verdict::Welcome) {
      fds = receiveAll(socket, bytesOf(roster), static_cast<size_t>(size) + 1, deadline + kGrace,
                       interrupt);
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::PeerLost) {
      throw Error(ErrorKind::PeerLost, "rank 0 died, or gave up, while " + self + " was joining",
                  {0}, kOp, "see its output for the reason");
    }
    if (error.kind() == ErrorKind::Timeout) {
      throw Error(ErrorKind::Timeout,
                  self + " has joined rank 0, which still waits for others, or hangs", {0}, kOp,
                  kMissingHint);
    }
    throw;
  }
  if (answer.protocol != kProtocol) throw versionError(rank);
  switch (answer.verdict) {
    case Verdict::Welcome:
      break;
    case Verdict::OtherVersion:
      throw versionError(rank);
    case Verdict::OtherSize:
      throw sizeError(rank, size, static_cast<int>(answer.detail));
    case Verdict::NoSuchRank:
      throw Error(ErrorKind::InvalidArgument,
                  self + " cannot join: rank 0 takes ranks 1 to " + std::to_string(size - 1));
    case Verdict::RankTaken:
      throw Error(ErrorKind::InvalidArgument, self + " has joined already, as another process",
                  {rank}, kOp, "give every process a rank of its own");
    case Verdict::Missing:
      throw missingError(rank, answer.detail);
  }
  HostGroup group;
  group.memory = std::move(fds[0]);
  for (int r = 0; r < size; ++r) group.brought.push_back(std::move(fds[r + 1]));
  group.pids.assign(roster.pids, roster.pids + size);
  group.processes.assign(roster.processes, roster.processes + size);
  return group;
}

}  // namespace ctran
