// What the leader of a new group does where it hears all others itself.
#include <algorithm>

#include "ctran/bootstrap/bootstrap_tree.h"
#include "ctran/bootstrap/hand_over_messages.h"
#include "ctran/bootstrap/joining_ranks.h"
#include "ctran/os/process.h"

namespace ctran::hand_over {
namespace {

/// Descriptors on their way to those who join. The system allows a user about as many in all as one
/// process may have open.
constexpr size_t kMaxOnTheirWay = 256;

/// All ranks join rank 0.
class Reception {
 public:
  Reception(Acceptor& local, Acceptor* acceptor, const LeaderAddress& address, int size,
            UniqueFd memory, UniqueFd brings, const HasEnded& hasEnded)
      : key_(address.key),
        host_(address.host.data()),
        size_(size),
        joining_(local, acceptor, address.key, size, 1, size - 1) {
    joining_.watch(hasEnded);
    group_.memory = std::move(memory);
    group_.brought.resize(size);
    group_.brought[0] = std::move(brings);
    group_.pids.assign(size, ::getpid());
    group_.processes.assign(size, processToken());
  }

  HostGroup run(Deadline deadline, const Interrupt& interrupt) {
    try {
      awaitAll(deadline, interrupt);
      if (joining_.anyIsFar()) {
        tellPlaces(deadline, interrupt);
      } else {
        handOver(deadline, interrupt);
      }
    } catch (const Error& error) {
      if (!isForWantOfDescriptors(error)) throw;
      lacksDescriptor(0, error.message());
    }
    return std::move(group_);
  }

 private:
  void awaitAll(Deadline deadline, const Interrupt& interrupt) {
    while (!joining_.areComplete()) {
      std::vector<int> news;
      try {
        news = joining_.hear(deadline, interrupt);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::Timeout) throw;
        giveUpOn(missing());
      }
      // A rank that has joined has nothing to say before it is told more: it has hung up. One that
      // has not joined has ended.
      if (!news.empty()) lose(news.back());
    }
  }

  uint64_t missing() const {
    uint64_t bits = 0;
    for (const int r : joining_.absent()) bits |= uint64_t{1} << r;
    return bits;
  }

  /// What has become of one rank is told to all others that have joined.
  void answerAll(int except, Reply reply, uint64_t detail) const {
    for (const int r : joining_.present()) {
      if (r != except) answer(joining_.socketOf(r), reply, detail);
    }
  }

  [[noreturn]] void giveUpOn(uint64_t absent) const {
    answerAll(-1, Reply::Missing, absent);
    throw missingError(0, absent);
  }
  [[noreturn]] void giveUpOn(int rank) const { giveUpOn(uint64_t{1} << rank); }

  [[noreturn]] void lose(int rank) {
    answerAll(rank, Reply::Lost, static_cast<uint64_t>(rank));
    if (!joining_.has(rank)) throw endedError(rank);
    const JoiningRanks::Joiner& joiner = joining_.joiner(rank);
    throw lostError(
        rank, "rank " + std::to_string(rank) +
                  (joiner.near ? " (pid " + std::to_string(joiner.pid) + ")" : std::string()));
  }

  [[noreturn]] void lacksDescriptor(int rank, const std::string& why = {}) const {
    answerAll(rank, Reply::NoDescriptor, static_cast<uint64_t>(rank));
    throw descriptorError(rank, why);
  }

  /// All ranks get everything, or none goes on.
  void handOver(Deadline deadline, const Interrupt& interrupt) {
    for (int r = 1; r < size_; ++r) {
      JoiningRanks::Joiner& joiner = joining_.joiner(r);
      group_.brought[r] = std::move(joiner.brought);
      group_.pids[r] = joiner.pid;
      group_.processes[r] = joiner.process;
    }
    std::vector<int> fds{group_.memory.get()};
    for (const UniqueFd& fd : group_.brought) fds.push_back(fd.get());
    Roster roster{};
    std::copy(group_.pids.begin(), group_.pids.end(), roster.pids);
    std::copy(group_.processes.begin(), group_.processes.end(), roster.processes);
    std::vector<int> owing;  // those who have not told what they got
    for (int r = 1; r < size_; ++r) {
      while (!owing.empty() && (owing.size() + 1) * fds.size() > kMaxOnTheirWay) {
        takeReceipts(owing, deadline, interrupt);
      }
      Answer welcome{kProtocol, Reply::Welcome, 0};
      tell(r, bytesOf(welcome), {}, deadline, interrupt);
      tell(r, bytesOf(roster), fds, deadline, interrupt);
      owing.push_back(r);
    }
    while (!owing.empty()) takeReceipts(owing, deadline, interrupt);
    Answer welcome{kProtocol, Reply::Welcome, 0};
    for (int r = 1; r < size_; ++r) tell(r, bytesOf(welcome), {}, deadline, interrupt);
  }

  void tell(int rank, std::span<const std::byte> what, std::span<const int> fds, Deadline deadline,
            const Interrupt& interrupt) {
    try {
      sendAll(joining_.socketOf(rank), what, fds, deadline, interrupt);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::PeerLost) lose(rank);
      if (error.kind() == ErrorKind::Timeout) giveUpOn(rank);
      throw;
    }
  }

  void takeReceipts(std::vector<int>& owing, Deadline deadline, const Interrupt& interrupt) {
    std::vector<int> sockets;
    for (const int rank : owing) sockets.push_back(joining_.socketOf(rank).get());
    std::vector<size_t> readable;
    try {
      readable = waitReadable(sockets, deadline, interrupt);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::Timeout) giveUpOn(owing[0]);
      throw;
    }
    for (size_t i = readable.size(); i-- > 0;) {
      const int rank = owing[readable[i]];
      Receipt receipt{};
      try {
        receiveAll(joining_.socketOf(rank), bytesOf(receipt), 0, Deadline{});
      } catch (const Error&) {
        lose(rank);
      }
      if (receipt != Receipt::All) lacksDescriptor(rank);
      owing.erase(owing.begin() + static_cast<std::ptrdiff_t>(readable[i]));
    }
  }

  void tellPlaces(Deadline deadline, const Interrupt& interrupt) {
    OwnHosts own = makeHosts(key_, 0, size_, host_);
    std::vector<Places> parts{own.places};
    int rank = 0;
    try {
      Answer several{kProtocol, Reply::SeveralHosts, 0};
      for (rank = 1; rank < size_; ++rank) {
        sendAll(joining_.socketOf(rank), bytesOf(several), {}, deadline, interrupt);
      }
      for (rank = 1; rank < size_; ++rank) {
        OnePlace one{};
        receiveAll(joining_.socketOf(rank), bytesOf(one), 0, deadline, interrupt);
        one.place.rank = rank;
        parts.emplace_back(one.place, one.site);
      }
      const Places all = Places::merged(parts);
      Answer welcome{kProtocol, Reply::Welcome, all.bytes().size()};
      for (rank = 1; rank < size_; ++rank) {
        sendAll(joining_.socketOf(rank), bytesOf(welcome), {}, deadline, interrupt);
        sendAll(joining_.socketOf(rank), all.bytes(), {}, deadline, interrupt);
      }
      own.hosts->places = all;
      own.hosts->neighbours = NeighbourLists(all).of(0);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::PeerLost) lose(rank);
      if (error.kind() != ErrorKind::Timeout) throw;
      giveUpOn(rank);
    }
    group_ = {};
    group_.hosts = std::move(own.hosts);
  }

  const JobKey key_;
  const std::string host_;
  const int size_;
  JoiningRanks joining_;
  HostGroup group_;
};

}  // namespace

HostGroup gather(Acceptor& local, Acceptor* acceptor, const LeaderAddress& address, int size,
                 UniqueFd memory, UniqueFd brings, Deadline deadline, const Interrupt& interrupt,
                 const HasEnded& hasEnded) {
  if (size > BootstrapTree::kMostInOneLevel) {
    if (acceptor == nullptr) {
      throw Error(ErrorKind::Unsupported,
                  std::to_string(size) +
                      " ranks are too many for shared memory, and no network interface can be used",
                  {}, kOp, "see CTRAN_TCP_INTERFACES");
    }
    JoiningRanks joining(local, acceptor, address.key, size, 1, BootstrapTree{0, size}.children());
    joining.watch(hasEnded);
    return meetInTree(&joining, {0, size}, {}, address.key, textOf(address.host), deadline,
                      interrupt);
  }
  return Reception(local, acceptor, address, size, std::move(memory), std::move(brings), hasEnded)
      .run(deadline, interrupt);
}

}  // namespace ctran::hand_over
