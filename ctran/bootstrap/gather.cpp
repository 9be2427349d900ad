// What the leader of a new group does.
#include <algorithm>

#include "ctran/bootstrap/hand_over_messages.h"
#include "ctran/os/process.h"

namespace ctran::hand_over {
namespace {

constexpr size_t kMaxUnheard = 64;
/// Descriptors on their way to those who join. The system allows a user about as many in all as one
/// process may have open.
constexpr size_t kMaxOnTheirWay = 256;

/// The callers of a leader.
class Reception {
 public:
  Reception(Doorman& local, Doorman* doorman, const LeaderAddress& address, int size,
            UniqueFd memory, UniqueFd brings)
      : local_(local),
        doorman_(doorman),
        key_(address.key),
        host_(address.host.data()),
        joined_(size),
        remote_(size) {
    group_.memory = std::move(memory);
    group_.brought.resize(size);
    group_.brought[0] = std::move(brings);
    group_.pids.assign(size, ::getpid());
    group_.processes.assign(size, processToken());
    local_.expect(key_);
    if (doorman_ != nullptr) doorman_->expect(key_, size);
  }

  HostGroup run(Deadline deadline, const Interrupt& interrupt) {
    try {
      awaitAll(deadline, interrupt);
      if (severalHosts()) {
        tellPlaces(deadline, interrupt);
      } else {
        handOver(deadline, interrupt);
      }
    } catch (const Error& error) {
      if (!isForWantOfDescriptors(error)) throw;
      lacksDescriptor(0, error.what());
    }
    return std::move(group_);
  }

 private:
  /// Hears whoever calls, until all have joined.
  void awaitAll(Deadline deadline, const Interrupt& interrupt) {
    while (present_ < size() - 1) {
      std::vector<int> sockets{local_.fd()};
      std::vector<int> ranks;
      for (const Socket& socket : unheard_) sockets.push_back(socket.get());
      const size_t unheard = unheard_.size();
      for (int r = 1; r < size(); ++r) {
        if (!hasJoined(r)) continue;
        sockets.push_back(socketOf(r).get());
        ranks.push_back(r);
      }
      if (doorman_ != nullptr) sockets.push_back(doorman_->fd());
      std::vector<size_t> readable;
      try {
        readable = waitReadable(sockets, deadline, interrupt);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::Timeout) throw;
        giveUpOn(missing());
      }
      // From the back, so that removing one does not move the others.
      for (size_t i = readable.size(); i-- > 0;) {
        const size_t index = readable[i];
        if (index == 0) {
          hearNeighbours();
        } else if (index <= unheard) {
          Socket socket = std::move(unheard_[index - 1]);
          unheard_.erase(unheard_.begin() + static_cast<std::ptrdiff_t>(index) - 1);
          hear(std::move(socket));
        } else if (index - 1 - unheard < ranks.size()) {
          lose(ranks[index - 1 - unheard]);
        } else {
          hearOthers();
        }
      }
    }
  }

  int size() const { return static_cast<int>(joined_.size()); }

  uint64_t missing() const {
    uint64_t bits = 0;
    for (int r = 1; r < std::min(size(), 64); ++r) {
      if (!hasJoined(r)) bits |= uint64_t{1} << r;
    }
    return bits;
  }

  bool hasJoined(int rank) const { return joined_[rank] || remote_[rank]; }
  const UniqueFd& socketOf(int rank) const {
    return joined_[rank] ? joined_[rank].fd() : remote_[rank].fd();
  }
  bool severalHosts() const {
    return size() > kMaxRanks ||
           std::any_of(remote_.begin(), remote_.end(),
                       [](const auto& socket) { return static_cast<bool>(socket); });
  }

  /// Callers from other hosts.
  void hearOthers() {
    doorman_->poll(
        [this](const Introduction& who) {
          if (who.purpose != Purpose::Join) return Verdict::OtherTarget;
          return hasJoined(who.rank) ? Verdict::RankTaken : Verdict::Welcome;
        },
        [this](const Introduction& who, Socket socket) {
          remote_[who.rank] = std::move(socket);
          ++present_;
        });
  }

  /// Callers of this host.
  void hearNeighbours() {
    local_.poll([](const Introduction&) { return Verdict::Welcome; },
                [this](const Introduction&, Socket socket) {
                  unheard_.push_back(std::move(socket));
                  // One that says nothing must not keep the others out.
                  if (unheard_.size() > kMaxUnheard) unheard_.erase(unheard_.begin());
                });
  }

  /// Who has proved the key: what follows are errors of our own ranks.
  void hear(Socket socket) {
    HostHello hello{};
    std::vector<UniqueFd> fds;
    try {
      // It is sent in one piece.
      fds = receiveAll(socket.fd(), bytesOf(hello), 1, Deadline{});
    } catch (const Error& error) {
      if (error.op() != kNoDescriptors) return;
      answer(socket.fd(), Reply::NoDescriptor, 0);  // that is no fault of the caller
      throw;
    }
    if (hello.protocol != kProtocol) {
      answer(socket.fd(), Reply::OtherVersion, 0);
      throw versionError(hello.rank);
    }
    if (hello.size != size()) {
      answer(socket.fd(), Reply::OtherSize, static_cast<uint64_t>(size()));
      throw sizeError(hello.rank, hello.size, size());
    }
    if (hello.rank < 1 || hello.rank >= size()) return answer(socket.fd(), Reply::NoSuchRank, 0);
    if (hasJoined(hello.rank)) return answer(socket.fd(), Reply::RankTaken, 0);
    group_.brought[hello.rank] = std::move(fds[0]);
    group_.pids[hello.rank] = hello.pid;
    group_.processes[hello.rank] = hello.process;
    joined_[hello.rank] = std::move(socket);
    ++present_;
  }

  /// What has become of one rank is told to all others that have joined.
  void answerAll(int except, Reply reply, uint64_t detail) const {
    for (int r = 1; r < size(); ++r) {
      if (r != except && hasJoined(r)) answer(socketOf(r), reply, detail);
    }
  }

  [[noreturn]] void giveUpOn(uint64_t absent) const {
    answerAll(-1, Reply::Missing, absent);
    throw missingError(0, absent);
  }
  [[noreturn]] void giveUpOn(int rank) const { giveUpOn(rank < 64 ? uint64_t{1} << rank : 0); }

  /// A rank that has joined has nothing to say before it is told more: it has hung up.
  [[noreturn]] void lose(int rank) const {
    answerAll(rank, Reply::Lost, static_cast<uint64_t>(rank));
    throw lostError(rank, "rank " + std::to_string(rank) +
                              (joined_[rank] ? " (pid " + std::to_string(group_.pids[rank]) + ")"
                                             : std::string()));
  }

  [[noreturn]] void lacksDescriptor(int rank, const std::string& why = {}) const {
    answerAll(rank, Reply::NoDescriptor, static_cast<uint64_t>(rank));
    throw descriptorError(rank, why);
  }

  static void answer(const UniqueFd& socket, Reply reply, uint64_t detail) {
    Answer message{kProtocol, reply, detail};
    try {
      sendAll(socket, bytesOf(message), {}, Deadline{});
    } catch (const Error&) {
      // It is gone, and needs no answer.
    }
  }

  /// All ranks get everything, or none goes on.
  void handOver(Deadline deadline, const Interrupt& interrupt) {
    std::vector<int> fds{group_.memory.get()};
    for (const UniqueFd& fd : group_.brought) fds.push_back(fd.get());
    Roster roster{};
    std::copy(group_.pids.begin(), group_.pids.end(), roster.pids);
    std::copy(group_.processes.begin(), group_.processes.end(), roster.processes);
    std::vector<int> owing;  // those who have not told what they got
    for (int r = 1; r < size(); ++r) {
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
    for (int r = 1; r < size(); ++r) tell(r, bytesOf(welcome), {}, deadline, interrupt);
  }

  void tell(int rank, std::span<const std::byte> what, std::span<const int> fds, Deadline deadline,
            const Interrupt& interrupt) const {
    try {
      sendAll(joined_[rank].fd(), what, fds, deadline, interrupt);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::PeerLost) lose(rank);
      if (error.kind() == ErrorKind::Timeout) giveUpOn(rank);
      throw;
    }
  }

  void takeReceipts(std::vector<int>& owing, Deadline deadline, const Interrupt& interrupt) const {
    std::vector<int> sockets;
    for (const int rank : owing) sockets.push_back(joined_[rank].get());
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
        receiveAll(joined_[rank].fd(), bytesOf(receipt), 0, Deadline{});
      } catch (const Error&) {
        lose(rank);
      }
      if (receipt != Receipt::All) lacksDescriptor(rank);
      owing.erase(owing.begin() + static_cast<std::ptrdiff_t>(readable[i]));
    }
  }

  void tellPlaces(Deadline deadline, const Interrupt& interrupt) {
    if (doorman_ == nullptr) {
      throw Error(ErrorKind::Unsupported,
                  std::to_string(size()) +
                      " ranks are too many for shared memory, and no network "
                      "interface can be used",
                  {}, kOp, "see CTRAN_TCP_INTERFACES");
    }
    auto hosts = std::make_unique<Hosts>();
    hosts->key = key_;
    hosts->places.resize(size());
    hosts->local = std::make_unique<Leader>(key_);
    hosts->doorman = std::make_unique<Doorman>(localAddresses(), key_, 0, size());
    hosts->places[0] = placeAt(host_, hosts->doorman->addresses());
    hosts->places[0].socketName = hosts->local->address().socketName;
    int rank = 0;
    try {
      Answer several{kProtocol, Reply::SeveralHosts, 0};
      for (rank = 1; rank < size(); ++rank) {
        sendAll(socketOf(rank), bytesOf(several), {}, deadline, interrupt);
      }
      for (rank = 1; rank < size(); ++rank) {
        receiveAll(socketOf(rank), bytesOf(hosts->places[rank]), 0, deadline, interrupt);
      }
      Answer welcome{kProtocol, Reply::Welcome, 0};
      const auto table = std::as_bytes(std::span(hosts->places));
      for (rank = 1; rank < size(); ++rank) {
        sendAll(socketOf(rank), bytesOf(welcome), {}, deadline, interrupt);
        sendAll(socketOf(rank), table, {}, deadline, interrupt);
      }
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::PeerLost) lose(rank);
      if (error.kind() != ErrorKind::Timeout) throw;
      giveUpOn(rank);
    }
    group_ = {};
    group_.hosts = std::move(hosts);
  }

  Doorman& local_;
  Doorman* const doorman_;  // null without a network
  const JobKey key_;
  const std::string host_;
  HostGroup group_;
  std::vector<Socket> unheard_;  // have proved the key, not said who they are; oldest first
  std::vector<Socket> joined_;   // by rank: those of this host
  std::vector<Socket> remote_;   // by rank: those of others
  int present_ = 0;
};

}  // namespace

HostGroup gather(Doorman& local, Doorman* doorman, const LeaderAddress& address, int size,
                 UniqueFd memory, UniqueFd brings, Deadline deadline, const Interrupt& interrupt) {
  return Reception(local, doorman, address, size, std::move(memory), std::move(brings))
      .run(deadline, interrupt);
}

}  // namespace ctran::hand_over
