#include "ctran/bootstrap/hand_over.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/base/rank_list.h"
#include "ctran/os/process.h"
#include "ctran/os/shared_memory.h"

namespace ctran {
namespace {

/// Changes with the messages below and with the arena's layout. Every version's HostHello starts
/// with key and protocol, and every version's Answer with protocol and reply.
constexpr uint32_t kProtocol = 0xc7a20004;
constexpr int kMaxRanks = 64;
constexpr size_t kMaxUnheard = 64;
constexpr std::chrono::milliseconds kGrace{500};

struct HostHello {
  JobKey key;
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
  SeveralHosts,  ///< each rank answers with its Place, and gets a Welcome and those of all
  Lost,          ///< a rank that had joined has died
};

struct Answer {
  uint32_t protocol;
  Reply reply;
  uint64_t detail;  ///< OtherSize: the leader's; Missing: bit per rank that did not come; Lost: it
};

/// Follows a welcome, with the descriptors.
struct Roster {
  int32_t pids[kMaxRanks];
  uint64_t processes[kMaxRanks];
};

static_assert(std::is_trivially_copyable_v<LeaderAddress>);
static_assert(std::is_trivially_copyable_v<Place>);

constexpr const char* kOp = "new_comm";
constexpr const char* kMissingHint =
    "see whether they started, with the same world size, name and store";

template <class T>
std::span<std::byte> bytesOf(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

Error missingError(int waiting, uint64_t missing) {
  std::vector<int> ranks;
  for (; missing != 0; missing &= missing - 1) ranks.push_back(std::countr_zero(missing));
  // There is no room for more bits in an Answer.
  const std::string text = ranks.empty() ? "of 64 and more" : listed(ranks);
  return Error(ErrorKind::Timeout,
               "rank " + std::to_string(waiting) + " waited for rank" +
                   (ranks.size() == 1 ? " " : "s ") + text + ", who did not join",
               ranks, kOp, kMissingHint);
}

/// `who`: the rank, and its process if that is known.
Error lostError(int rank, const std::string& who) {
  return Error(ErrorKind::PeerLost, who + " died, or gave up, while others were still joining",
               {rank}, kOp, "see its output for the reason");
}

Error sizeError(int rank, int size, int leaderSize) {
  return Error(ErrorKind::Mismatch,
               "rank " + std::to_string(rank) + " was started with world size " +
                   std::to_string(size) + ", rank 0 with " +
                   (leaderSize == 0 ? "another" : std::to_string(leaderSize)),
               {0, rank}, kOp, "start all ranks with the same world size");
}

Error versionError(int rank) {
  return Error(
      ErrorKind::System,
      "rank 0 and rank " + std::to_string(rank) + " run different versions of this library",
      {0, rank}, kOp);
}

template <size_t n>
void copyText(std::array<char, n>& to, const std::string& text) {
  std::copy_n(text.begin(), std::min(text.size(), n - 1), to.begin());
}

/// Of what came from outside, where nothing says that it ends with a zero.
template <size_t n>
std::string textOf(const std::array<char, n>& text) {
  return {text.data(), ::strnlen(text.data(), n)};
}

Place placeAt(const std::string& host, const std::vector<NetAddress>& addresses) {
  Place place;
  copyText(place.host, host);
  copyText(place.process, processName());
  std::copy_n(addresses.begin(), std::min(addresses.size(), kMaxAddresses),
              place.addresses.begin());
  return place;
}

std::string freshSocketName() {
  std::array<std::byte, 12> random;
  fillRandom(random.data(), random.size());
  std::string name = "ctran-";
  for (std::byte b : random) {
    name += "0123456789abcdef"[static_cast<int>(b) >> 4];
    name += "0123456789abcdef"[static_cast<int>(b) & 15];
  }
  return name;
}

/// The callers of a leader.
class Reception {
 public:
  Reception(const UniqueFd& listener, Doorman* doorman, const LeaderAddress& address, int size,
            UniqueFd memory, UniqueFd brings)
      : listener_(listener),
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
    if (doorman_ != nullptr) doorman_->expect(key_, size);
  }

  /// Hears whoever calls, until all have joined.
  HostGroup run(Deadline deadline, const Interrupt& interrupt) {
    while (present_ < size() - 1) {
      std::vector<int> sockets{listener_.get()};
      std::vector<int> ranks;
      for (const UniqueFd& socket : unheard_) sockets.push_back(socket.get());
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
        const uint64_t absent = missing();
        for (const int r : ranks) answer(socketOf(r), Reply::Missing, absent);
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
        } else if (index - 1 - unheard < ranks.size()) {
          lose(ranks[index - 1 - unheard]);
        } else {
          hearOthers();
        }
      }
    }
    if (severalHosts()) {
      tellPlaces(deadline, interrupt);
    } else {
      handOver(deadline);
    }
    return std::move(group_);
  }

 private:
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
    return joined_[rank] ? joined_[rank] : remote_[rank].fd();
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
        [this](const Introduction& who, TcpSocket socket) {
          remote_[who.rank] = std::move(socket);
          ++present_;
        });
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
    HostHello hello{};
    std::vector<UniqueFd> fds;
    try {
      fds = receiveAll(socket, bytesOf(hello), 1, Deadline{});  // it is sent in one piece
    } catch (const Error& error) {
      if (error.op() == kNoDescriptors) throw;  // that is no fault of the caller
      return;
    }
    if (!sameDigest(hello.key, key_))
      return;  // a stranger; what follows are errors of our own ranks
    if (hello.protocol != kProtocol) {
      answer(socket, Reply::OtherVersion, 0);
      throw versionError(hello.rank);
    }
    if (hello.size != size()) {
      answer(socket, Reply::OtherSize, static_cast<uint64_t>(size()));
      throw sizeError(hello.rank, hello.size, size());
    }
    if (hello.rank < 1 || hello.rank >= size()) return answer(socket, Reply::NoSuchRank, 0);
    if (hasJoined(hello.rank)) return answer(socket, Reply::RankTaken, 0);
    group_.brought[hello.rank] = std::move(fds[0]);
    group_.pids[hello.rank] = hello.pid;
    group_.processes[hello.rank] = hello.process;
    joined_[hello.rank] = std::move(socket);
    ++present_;
  }

  /// A rank that has joined has nothing to say: it has hung up. The others are told who it was.
  [[noreturn]] void lose(int rank) {
    for (int r = 1; r < size(); ++r) {
      if (r != rank && hasJoined(r)) answer(socketOf(r), Reply::Lost, static_cast<uint64_t>(rank));
    }
    throw lostError(rank, "rank " + std::to_string(rank) +
                              (joined_[rank] ? " (pid " + std::to_string(group_.pids[rank]) + ")"
                                             : std::string()));
  }

  static void answer(const UniqueFd& socket, Reply reply, uint64_t detail) {
    Answer message{kProtocol, reply, detail};
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
      Answer welcome{kProtocol, Reply::Welcome, 0};
      try {
        sendAll(joined_[r], bytesOf(welcome), {}, deadline);
        sendAll(joined_[r], bytesOf(roster), fds, deadline);
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::PeerLost) lose(r);
        throw;
      }
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
        sendAll(socketOf(rank), bytesOf(several), {}, deadline);
      }
      for (rank = 1; rank < size(); ++rank) {
        receiveAll(socketOf(rank), bytesOf(hosts->places[rank]), 0, deadline, interrupt);
      }
      Answer welcome{kProtocol, Reply::Welcome, 0};
      const auto table = std::as_bytes(std::span(hosts->places));
      for (rank = 1; rank < size(); ++rank) {
        sendAll(socketOf(rank), bytesOf(welcome), {}, deadline);
        sendAll(socketOf(rank), table, {}, deadline);
      }
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::PeerLost) lose(rank);
      if (error.kind() != ErrorKind::Timeout) throw;
      const uint64_t absent = rank < 64 ? uint64_t{1} << rank : 0;
      for (int r = 1; r < size(); ++r) answer(socketOf(r), Reply::Missing, absent);
      throw missingError(0, absent);
    }
    group_ = {};
    group_.hosts = std::move(hosts);
  }

  const UniqueFd& listener_;
  Doorman* const doorman_;  // null without a network
  const JobKey key_;
  const std::string host_;
  HostGroup group_;
  std::vector<UniqueFd> unheard_;  // connected, have not said who they are; oldest first
  std::vector<UniqueFd> joined_;   // by rank: those of this host
  std::vector<TcpSocket> remote_;  // by rank: those of others
  int present_ = 0;
};

/// Connects to a leader on another host; empty, and `notJoined`, if it cannot be reached.
TcpSocket callLeader(const LeaderAddress& leader, int rank, int size, Deadline deadline,
                     const Interrupt& interrupt, NotJoined& notJoined) {
  const std::vector<NetAddress> addresses(leader.addresses.begin(), leader.addresses.end());
  const std::string host = textOf(leader.host);
  const bool sameMachine = host.substr(0, host.find('/')) == bootIdentity();
  Caller caller(byReach(addresses, localAddresses(), sameMachine), leader.key,
                {rank, size, 0, Purpose::Join});
  while (true) {
    switch (caller.poll()) {
      case Caller::State::Welcome:
        return caller.takeSocket();
      case Caller::State::Failed:
        notJoined = {caller.why(), caller.somebodyListens()};
        return {};
      case Caller::State::Refused:
        if (caller.verdict() == Verdict::OtherSize) throw sizeError(rank, size, 0);
        throw Error(ErrorKind::InvalidArgument,
                    "rank " + std::to_string(rank) + " cannot join: it " + text(caller.verdict()),
                    {rank}, kOp, "give every process a rank of its own");
      case Caller::State::Pending:
        break;
    }
    const int fds[] = {caller.fd()};
    try {
      waitReadable(fds, deadline, interrupt);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Timeout) throw;
      notJoined = {"it did not answer in time", true};
      return {};
    }
  }
}

Error senselessError() {
  return Error(ErrorKind::System, "rank 0 sent an answer that makes no sense", {0}, kOp);
}

Error lostByLeader(const Answer& answer, int size) {
  if (answer.detail >= static_cast<uint64_t>(size)) return senselessError();
  const int rank = static_cast<int>(answer.detail);
  return lostError(rank, "as rank 0 says, rank " + std::to_string(rank));
}

HostGroup exchangePlaces(const UniqueFd& socket, const JobKey& key, int rank, int size,
                         const std::string& host, Deadline deadline, const Interrupt& interrupt) {
  HostGroup group;
  group.hosts = std::make_unique<Hosts>();
  group.hosts->key = key;
  group.hosts->doorman = std::make_unique<Doorman>(localAddresses(), key, rank, size);
  group.hosts->local = std::make_unique<Leader>(key);
  Place own = placeAt(host, group.hosts->doorman->addresses());
  own.socketName = group.hosts->local->address().socketName;
  sendAll(socket, bytesOf(own), {}, deadline);
  Answer verdict{};
  receiveAll(socket, bytesOf(verdict), 0, deadline + kGrace, interrupt);
  if (verdict.reply == Reply::Missing) throw missingError(rank, verdict.detail);
  if (verdict.reply == Reply::Lost) throw lostByLeader(verdict, size);
  if (verdict.reply != Reply::Welcome) throw senselessError();
  group.hosts->places.resize(size);
  receiveAll(socket, std::as_writable_bytes(std::span(group.hosts->places)), 0, deadline + kGrace,
             interrupt);
  return group;
}

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

LeaderAddress LeaderAddress::forOccasion(std::string_view occasion) const {
  // Keeps those apart who may join anyhow, so any hash does: FNV-1a. None for no occasion.
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : occasion) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  LeaderAddress address = *this;
  if (occasion.empty()) return address;
  for (int i = 0; i < 8; ++i) address.key[i] ^= static_cast<std::byte>(hash >> (8 * i));
  return address;
}

Leader::Leader(const JobKey& key) {
  const std::string name = freshSocketName();
  copyText(address_.socketName, name);
  address_.key = key;
  copyText(address_.host, hostIdentity());
  listener_ = listenAbstract(name, kMaxRanks);
}

Leader::Leader(Reach reach, const std::string& host) : Leader(randomKey()) {
  address_.host = {};
  copyText(address_.host, host);
  if (reach == Reach::OneHost) return;
  try {
    doorman_ = std::make_unique<Doorman>(localAddresses(), address_.key, 0, 0);
    address_.addresses = placeAt(host, doorman_->addresses()).addresses;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::InvalidArgument) throw;
    log(LogLevel::Debug, "ranks of one host only: %s", error.what());
  }
}

HostGroup Leader::gather(int size, UniqueFd memory, Deadline deadline, const Interrupt& interrupt,
                         UniqueFd brings, std::string_view occasion) {
  return Reception(listener_, doorman_.get(), address_.forOccasion(occasion), size,
                   std::move(memory), std::move(brings))
      .run(deadline, interrupt);
}

HostGroup shareHost(Hosts& hosts, const std::vector<int>& local, int rank, size_t bytes,
                    Deadline deadline, const Interrupt& interrupt) {
  const auto size = static_cast<int>(local.size());
  const auto index = static_cast<int>(std::find(local.begin(), local.end(), rank) - local.begin());
  const std::unique_ptr<Leader> own = std::move(hosts.local);
  bool interrupted = false;
  const Interrupt marked = [&] {
    interrupted = true;
    if (interrupt) interrupt();
    interrupted = false;
  };
  try {
    if (index == 0) {
      return own->gather(size, createSharedMemory("ctran", bytes), deadline, marked);
    }
    LeaderAddress leader;
    leader.socketName = hosts.places[local[0]].socketName;
    leader.key = hosts.key;
    const std::string host = hostIdentity();
    copyText(leader.host, host);
    auto group = join(leader, index, size, deadline, marked, nullptr, host);
    if (group) return std::move(*group);
    throw Error(ErrorKind::PeerLost, "the first rank of the host died, or gave up", {0}, kOp,
                "see its output for the reason");
  } catch (const Error& error) {
    if (interrupted) throw;  // not of these ranks, nor in their numbers
    std::vector<int> ranks;
    for (const int r : error.ranks()) {
      if (r >= 0 && r < size) ranks.push_back(local[r]);
    }
    if (ranks.empty()) ranks.push_back(rank);  // who has no descriptor left, for example
    throw Error(error.kind(),
                "ranks " + listed(local) + " share a host, but not its memory yet (as its " +
                    "ranks 0, 1, ...): " + error.what(),
                ranks, kOp);
  }
}

std::optional<HostGroup> join(const LeaderAddress& leader, int rank, int size, Deadline deadline,
                              const Interrupt& interrupt, NotJoined* notJoined,
                              const std::string& host, UniqueFd brings) {
  const std::string self = "rank " + std::to_string(rank);
  const bool sameHost = host == textOf(leader.host);
  UniqueFd local;
  TcpSocket remote;
  if (sameHost) {
    local = connectAbstract(textOf(leader.socketName), deadline);
    if (!local) return std::nullopt;
  } else {
    NotJoined reason;
    remote = callLeader(leader, rank, size, deadline, interrupt, reason);
    if (!remote) {
      if (notJoined != nullptr) *notJoined = reason;
      return std::nullopt;
    }
  }
  const UniqueFd& socket = sameHost ? local : remote.fd();

  const int bringsFd[] = {brings.get()};
  HostHello hello{leader.key, kProtocol, rank, size, ::getpid(), processToken()};
  Answer answer{};
  Roster roster{};
  std::vector<UniqueFd> fds;
  try {
    if (sameHost) sendAll(socket, bytesOf(hello), bringsFd, deadline);
    receiveAll(socket, bytesOf(answer), 0, deadline + kGrace, interrupt);
    if (answer.protocol == kProtocol && answer.reply == Reply::Welcome) {
      fds = receiveAll(socket, bytesOf(roster), static_cast<size_t>(size) + 1, deadline + kGrace,
                       interrupt);
    }
    if (answer.protocol == kProtocol && answer.reply == Reply::SeveralHosts) {
      return exchangePlaces(socket, leader.key, rank, size, host, deadline, interrupt);
    }
  } catch (const Error& error) {
    if (!error.ranks().empty()) throw;  // rank 0 has said who
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
  // A roster has room for so many, and of more ranks the leader tells places.
  if (answer.reply == Reply::Welcome && size > kMaxRanks) throw senselessError();
  switch (answer.reply) {
    case Reply::Welcome:
    case Reply::SeveralHosts:
      break;
    case Reply::OtherVersion:
      throw versionError(rank);
    case Reply::OtherSize:
      throw sizeError(rank, size, static_cast<int>(answer.detail));
    case Reply::NoSuchRank:
      throw Error(ErrorKind::InvalidArgument,
                  self + " cannot join: rank 0 takes ranks 1 to " + std::to_string(size - 1));
    case Reply::RankTaken:
      throw Error(ErrorKind::InvalidArgument, self + " has joined already, as another process",
                  {rank}, kOp, "give every process a rank of its own");
    case Reply::Missing:
      throw missingError(rank, answer.detail);
    case Reply::Lost:
      throw lostByLeader(answer, size);
  }
  if (answer.reply != Reply::Welcome) throw senselessError();
  HostGroup group;
  group.memory = std::move(fds[0]);
  for (int r = 0; r < size; ++r) group.brought.push_back(std::move(fds[r + 1]));
  group.pids.assign(roster.pids, roster.pids + size);
  group.processes.assign(roster.processes, roster.processes + size);
  return group;
}

}  // namespace ctran
