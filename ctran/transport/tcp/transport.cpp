#include "ctran/transport/tcp/transport.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>

#include "ctran/base/clock.h"
#include "ctran/base/log.h"
#include "ctran/os/process.h"
#include "ctran/transport/tcp/failure.h"

namespace ctran {
namespace {

constexpr uint64_t kDoorman = UINT64_MAX;  // in epoll; links have their peer's rank,
constexpr std::chrono::milliseconds kTelling{100};
constexpr uint64_t kCallerBit = uint64_t{1} << 32;  // callers this bit beside it

OperationRecord operationOf(const FrameHeader& frame) {
  OperationRecord operation;
  operation.sequence = frame.name.lane == kCollectiveLane ? frame.name.sequence : 0;
  operation.signature = frame.signature;
  operation.what = frame.what;
  operation.count = frame.count;
  return operation;
}

}  // namespace

/// What this rank knows of another one, and has with it.
struct TcpTransport::Peer final : Link::Reader {
  Peer(TcpTransport& transport, int rank) : transport(transport), rank(rank) {}

  TcpTransport& transport;
  const int rank;
  State state = State::Unknown;
  std::unique_ptr<Caller> caller;
  int callerFd = -1;
  Link link;
  bool wantsToWrite = false;  // epoll tells when the socket has room
  bool hasLeft = false;
  bool isNear = false;  // shares this rank's board, in which it writes itself

  std::map<MessageName, Inbound*> bound;      // not complete
  std::map<MessageName, Early> early;         // complete, or on the way, and not bound
  std::map<MessageName, OtherEnd> announced;  // larger ones that are not bound
  std::map<MessageName, OtherEnd> ready;      // that the peer has bound, and that were not sent yet
  std::map<MessageName, Outbound*> unready;   // that the peer has not bound yet

  struct Window {
    size_t used = 0;                // of the peer's memory, by what was sent
    std::deque<Outbound*> waiting;  // for room in it
    size_t held = 0;                // of this rank's memory, as the peer counts
    size_t consumed = 0;            // of that, to be told to the peer
  };
  Window windows[kLanes];

  // Where the payload that is being read belongs.
  Inbound* inbound = nullptr;
  Early* arriving = nullptr;
  std::vector<std::byte> failure;

  uint64_t lastRecord = 0;
  MessageName lastMessage;

  std::byte* begin(const FrameHeader& frame) override;
  void end(const FrameHeader& frame) override;

 private:
  std::byte* beginEager(const FrameHeader& frame);
  std::byte* beginData(const FrameHeader& frame);
  Inbound* find(const MessageName& name) {
    const auto found = bound.find(name);
    return found == bound.end() ? nullptr : found->second;
  }
};

std::byte* TcpTransport::Peer::begin(const FrameHeader& frame) {
  inbound = nullptr;
  arriving = nullptr;
  transport.heard(*this, frame);
  switch (frame.type) {
    case FrameType::Eager:
      return beginEager(frame);
    case FrameType::Data:
      return beginData(frame);
    case FrameType::Announce: {
      const OtherEnd other{frame.offset, operationOf(frame)};
      Inbound* const message = find(frame.name);
      if (message == nullptr) {
        if (announced.size() >= kMaxPromises) throw std::string("it announced too many messages");
        announced[frame.name] = other;
        transport.offer(frame.name);
      } else if (message->bytes != frame.offset) {
        transport.finishWrong(*message, other);
      }
      return nullptr;
    }
    case FrameType::Ready: {
      const OtherEnd other{frame.offset, operationOf(frame)};
      const auto found = unready.find(frame.name);
      if (found == unready.end()) {
        if (ready.size() >= kMaxPromises) throw std::string("it is ready for too many messages");
        ready[frame.name] = other;
        return nullptr;
      }
      Outbound& message = *found->second;
      unready.erase(found);
      if (message.bytes != frame.offset) {
        transport.finishWrong(message, other);
      } else {
        message.other = other;
        transport.pushData(*this, message);
      }
      return nullptr;
    }
    case FrameType::Credit: {
      Window& window = windows[frame.name.lane];
      if (frame.offset > window.used) throw std::string("it gave back more than it was sent");
      window.used -= frame.offset;
      transport.admitWaiting(*this, frame.name.lane);
      return nullptr;
    }
    case FrameType::Failure:
      failure.resize(frame.bytes);
      return failure.data();
    case FrameType::Goodbye:
      hasLeft = true;
      transport.board_.control(rank).state.store(Board::RankState::Left, std::memory_order_release);
      transport.moved_ = true;
      return nullptr;
  }
  return nullptr;
}

std::byte* TcpTransport::Peer::beginEager(const FrameHeader& frame) {
  Window& window = windows[frame.name.lane];
  window.held += eagerCost(frame.bytes);
  if (window.held > kEagerWindow) throw std::string("it sent more than there is room for");
  inbound = find(frame.name);
  if (inbound == nullptr) {
    const auto [entry, isNew] = early.try_emplace(frame.name);
    if (!isNew) throw std::string("it sent a message twice");
    entry->second.operation = operationOf(frame);
    entry->second.data.resize(frame.bytes);
    arriving = &entry->second;
    transport.offer(frame.name);
    return frame.bytes == 0 ? nullptr : arriving->data.data();
  }
  if (inbound->bytes != frame.bytes) {
    transport.finishWrong(*inbound, {frame.bytes, operationOf(frame)});
    inbound = nullptr;
    return nullptr;
  }
  inbound->other = {frame.bytes, operationOf(frame)};
  return inbound->data;
}

std::byte* TcpTransport::Peer::beginData(const FrameHeader& frame) {
  inbound = find(frame.name);
  if (inbound == nullptr) {
    if (transport.told_) return nullptr;  // its operation has failed
    throw std::string("it sent data that nobody asked for");
  }
  if (frame.offset > inbound->bytes || frame.bytes > inbound->bytes - frame.offset) {
    inbound = nullptr;
    throw std::string("it sent data beyond the end of a buffer");
  }
  inbound->other = {inbound->bytes, operationOf(frame)};
  return inbound->data + frame.offset;
}

void TcpTransport::Peer::end(const FrameHeader& frame) {
  switch (frame.type) {
    case FrameType::Eager:
      if (arriving != nullptr) {
        arriving->complete = true;
        // It may have been bound meanwhile.
        if (Inbound* const message = find(frame.name))
          transport.deliver(*this, *message, *arriving);
      } else {
        if (inbound != nullptr) transport.received(*inbound, frame.bytes);
        transport.consume(*this, frame.name.lane, frame.bytes);
      }
      break;
    case FrameType::Data:
      if (inbound != nullptr) transport.received(*inbound, frame.bytes);
      break;
    case FrameType::Failure:
      transport.failureCame(
          *this, std::string(reinterpret_cast<const char*>(failure.data()), failure.size()));
      break;
    default:
      break;
  }
  inbound = nullptr;
  arriving = nullptr;
}

Inbound::~Inbound() { transport.forget(*this); }
Outbound::~Outbound() { transport.forget(*this); }

TcpTransport::TcpTransport(Board& board, Hosts hosts, Listener& listener)
    : board_(board),
      listener_(listener),
      hosts_(std::move(hosts)),
      rank_(board.rank()),
      size_(board.size()),
      ownAddresses_(hosts_.doorman->addresses()),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw systemError("epoll_create1", errno);
  for (int r = 0; r < size_; ++r) {
    peers_.push_back(std::make_unique<Peer>(*this, r));
    const auto& host = hosts_.places[r].host;
    peers_[r]->isNear = host[0] != 0 && host == hosts_.places[rank_].host;
  }
  watch(hosts_.doorman->fd(), kDoorman, EPOLLIN, true);
}

TcpTransport::~TcpTransport() = default;

void TcpTransport::watch(int fd, uint64_t id, uint32_t events, bool isNew) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.get(), isNew ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) != 0) {
    throw systemError("epoll_ctl", errno);
  }
}

/// The lock, of which a thread that polls again and again would leave little to others.
class TcpTransport::Lock {
 public:
  explicit Lock(TcpTransport& transport) : transport_(transport) {
    transport_.wanted_.fetch_add(1, std::memory_order_relaxed);
    transport_.mutex_.lock();
    transport_.wanted_.fetch_sub(1, std::memory_order_relaxed);
  }
  ~Lock() { transport_.mutex_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  TcpTransport& transport_;
};

/// Holds the lock; then wakes the threads of this rank whose messages have ended meanwhile.
class TcpTransport::Waking {
 public:
  explicit Waking(TcpTransport& transport) : transport_(transport), lock_(transport) {}
  ~Waking() {
    if (transport_.moved_) transport_.wakeOwn();
  }

 private:
  TcpTransport& transport_;
  Lock lock_;
};

void TcpTransport::wakeOwn() {
  // The counters' stores must not pass the look for sleepers; see Board::published.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  listener_.wakeUp();
}

// --- Messages ------------------------------------------------------------------------------------

std::unique_ptr<Inbound> TcpTransport::receive(const MessageName& name, int rank, std::byte* data,
                                               size_t bytes, const OperationRecord& operation) {
  auto message = std::make_unique<Inbound>(*this, name, rank, data, bytes);
  const Waking lock(*this);
  Peer& peer = peerOf(rank);
  peer.bound[name] = message.get();
  if (rank == rank_) {
    receiveFromSelf(*message);
    return message;
  }
  if (const auto early = peer.early.find(name); early != peer.early.end()) {
    if (early->second.complete) deliver(peer, *message, early->second);
    return message;
  }
  if (const auto announced = peer.announced.find(name); announced != peer.announced.end()) {
    const OtherEnd other = announced->second;
    peer.announced.erase(announced);
    if (other.bytes != bytes) {
      finishWrong(*message, other);
      return message;
    }
  }
  ensure(peer);
  if (bytes > kEagerBytes) pushControl(peer, FrameType::Ready, name, bytes, operation);
  return message;
}

std::unique_ptr<Outbound> TcpTransport::send(const MessageName& name, int rank,
                                             const std::byte* data, size_t bytes,
                                             const OperationRecord& operation) {
  auto message = std::make_unique<Outbound>(*this, name, rank, data, bytes, operation);
  const Waking lock(*this);
  if (rank == rank_) {
    sendToSelf(*message);
    return message;
  }
  Peer& peer = peerOf(rank);
  ensure(peer);
  if (bytes <= kEagerBytes) {
    peer.windows[name.lane].waiting.push_back(message.get());
    admitWaiting(peer, name.lane);
  } else if (const auto ready = peer.ready.find(name); ready != peer.ready.end()) {
    message->other = ready->second;
    peer.ready.erase(ready);
    if (message->other.bytes != bytes) {
      finishWrong(*message, message->other);
    } else {
      pushData(peer, *message);
    }
  } else {
    peer.unready[name] = message.get();
    pushControl(peer, FrameType::Announce, name, bytes, operation);
  }
  return message;
}

/// A message has come, or been announced, that is not bound: threads that wait for any have to
/// look.
void TcpTransport::offer(const MessageName& name) {
  if (name.lane != kMessageLane) return;
  offers_.fetch_add(1, std::memory_order_release);
  moved_ = true;
}

bool TcpTransport::hasOffer(const MessageName& name, int rank) {
  const Lock lock(*this);
  const Peer& peer = peerOf(rank);
  return peer.early.count(name) != 0 || peer.announced.count(name) != 0 ||
         (rank == rank_ && peer.unready.count(name) != 0);
}

void TcpTransport::pushControl(Peer& peer, FrameType type, const MessageName& name, uint64_t offset,
                               const OperationRecord& operation) {
  FrameHeader header{type, 0, name, offset};
  header.signature = operation.signature;
  header.what = operation.what;
  header.count = operation.count;
  peer.link.push({header}, true);
  flush(peer);
}

void TcpTransport::admitWaiting(Peer& peer, uint32_t lane) {
  Peer::Window& window = peer.windows[lane];
  bool any = false;
  while (!window.waiting.empty() &&
         window.used + eagerCost(window.waiting.front()->bytes) <= kEagerWindow) {
    Outbound& message = *window.waiting.front();
    window.waiting.pop_front();
    window.used += eagerCost(message.bytes);
    pushEager(peer, message);
    any = true;
  }
  if (any) flush(peer);
}

void TcpTransport::pushEager(Peer& peer, Outbound& message) {
  FrameHeader header{FrameType::Eager, static_cast<uint32_t>(message.bytes), message.name};
  header.signature = message.operation.signature;
  header.what = message.operation.what;
  header.count = message.operation.count;
  peer.link.push({header, message.data, &message}, true);
}

void TcpTransport::pushData(Peer& peer, Outbound& message) {
  for (size_t offset = 0; offset < message.bytes; offset += kFrameBytes) {
    FrameHeader header{FrameType::Data,
                       static_cast<uint32_t>(std::min(kFrameBytes, message.bytes - offset)),
                       message.name, offset};
    header.signature = message.operation.signature;
    header.what = message.operation.what;
    header.count = message.operation.count;
    peer.link.push({header, message.data + offset, &message}, false);
  }
  flush(peer);
}

void TcpTransport::received(Inbound& message, size_t bytes) {
  message.moved += bytes;
  if (message.moved < message.bytes) return;
  peerOf(message.peer).bound.erase(message.name);
  finish(message);
}

void TcpTransport::finish(Transmission& message) {
  moved_ = true;
  message.progress.store(Transmission::kEnded, std::memory_order_release);
}

void TcpTransport::finishWrong(Transmission& message, const OtherEnd& other) {
  message.isWrong = true;
  message.other = other;
  Peer& peer = peerOf(message.peer);
  const auto bound = peer.bound.find(message.name);
  if (bound != peer.bound.end() && bound->second == &message) peer.bound.erase(bound);
  finish(message);
}

/// What came early is copied to where it belongs.
void TcpTransport::deliver(Peer& peer, Inbound& message, Early& early) {
  const size_t bytes = early.data.size();
  if (bytes == message.bytes) {
    message.other = {bytes, early.operation};
    if (bytes > 0) std::memcpy(message.data, early.data.data(), bytes);
    received(message, bytes);
  } else {
    finishWrong(message, {bytes, early.operation});
  }
  const MessageName name = message.name;
  peer.early.erase(name);
  consume(peer, name.lane, bytes);
}

void TcpTransport::consume(Peer& peer, uint32_t lane, size_t bytes) {
  Peer::Window& window = peer.windows[lane];
  window.consumed += eagerCost(bytes);
  if (window.consumed < kEagerWindow / 4 || peer.state != State::Up) return;
  window.held -= window.consumed;
  MessageName name;
  name.lane = lane;
  pushControl(peer, FrameType::Credit, name, std::exchange(window.consumed, 0), {});
}

/// A rank's messages to itself meet in memory: small ones are kept until they are received.
void TcpTransport::sendToSelf(Outbound& message) {
  Peer& self = peerOf(rank_);
  if (const auto found = self.bound.find(message.name); found != self.bound.end()) {
    Inbound& inbound = *found->second;
    self.unready[message.name] = &message;
    receiveFromSelf(inbound);
    return;
  }
  Peer::Window& window = self.windows[message.name.lane];
  offer(message.name);
  if (message.bytes > kEagerBytes || window.used + eagerCost(message.bytes) > kEagerWindow) {
    self.unready[message.name] = &message;
    return;
  }
  window.used += eagerCost(message.bytes);
  Early& early = self.early[message.name];
  early.data.assign(message.data, message.data + message.bytes);
  early.operation = message.operation;
  early.complete = true;
  finish(message);
}

void TcpTransport::receiveFromSelf(Inbound& message) {
  Peer& self = peerOf(rank_);
  const auto take = [&message, this](const std::byte* data, size_t bytes,
                                     const OperationRecord& operation) {
    if (bytes != message.bytes) return finishWrong(message, {bytes, operation});
    message.other = {bytes, operation};
    if (bytes > 0) std::memcpy(message.data, data, bytes);
    received(message, bytes);
  };
  if (const auto found = self.early.find(message.name); found != self.early.end()) {
    self.windows[message.name.lane].used -= eagerCost(found->second.data.size());
    take(found->second.data.data(), found->second.data.size(), found->second.operation);
    self.early.erase(found);
  } else if (const auto waiting = self.unready.find(message.name); waiting != self.unready.end()) {
    Outbound& outbound = *waiting->second;
    self.unready.erase(waiting);
    take(outbound.data, outbound.bytes, outbound.operation);
    finish(outbound);
  }
}

void TcpTransport::forget(Inbound& message) {
  const Lock lock(*this);
  Peer& peer = peerOf(message.peer);
  const auto found = peer.bound.find(message.name);
  if (found == peer.bound.end() || found->second != &message) return;
  peer.bound.erase(found);
  peer.link.divert(message.data, message.data + message.bytes);
  if (peer.inbound == &message) peer.inbound = nullptr;
}

void TcpTransport::forget(Outbound& message) {
  const Lock lock(*this);
  if (message.progress.load(std::memory_order_relaxed) != 0) return;
  Peer& peer = peerOf(message.peer);
  std::erase(peer.windows[message.name.lane].waiting, &message);
  const auto found = peer.unready.find(message.name);
  if (found != peer.unready.end() && found->second == &message) peer.unready.erase(found);
  peer.link.forget(&message);
}

// --- Connections ---------------------------------------------------------------------------------

void TcpTransport::ensure(Peer& peer) {
  if (peer.state != State::Unknown || leaving_) return;
  const Place& place = hosts_.places[peer.rank];
  const Place& own = hosts_.places[rank_];
  const auto boot = [](const Place& at) {
    const std::string host(at.host.data(), ::strnlen(at.host.data(), at.host.size()));
    return host.substr(0, host.find('/'));
  };
  const std::vector<NetAddress> addresses(place.addresses.begin(), place.addresses.end());
  peer.state = State::Calling;
  try {
    peer.caller =
        std::make_unique<Caller>(byReach(addresses, ownAddresses_, boot(place) == boot(own)),
                                 hosts_.key, Introduction{rank_, size_, peer.rank, Purpose::Link});
    pollCaller(peer);
  } catch (const Error& error) {  // of this rank: it may have no descriptor left
    peer.state = State::Unknown;
    throw Error(error.kind(), describe(rank_) + ": " + error.what(), {rank_});
  }
}

void TcpTransport::connect(int rank) {
  const Waking lock(*this);
  ensure(peerOf(rank));
}

void TcpTransport::pollCaller(Peer& peer) {
  switch (peer.caller->poll()) {
    case Caller::State::Pending:
      if (peer.caller->fd() != peer.callerFd) {
        peer.callerFd = peer.caller->fd();
        watch(peer.callerFd, kCallerBit | static_cast<uint64_t>(peer.rank), EPOLLIN, true);
      }
      return;
    case Caller::State::Welcome: {
      TcpSocket socket = peer.caller->takeSocket();
      if (peer.callerFd == socket.get()) {
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
      }
      return connected(peer, std::move(socket));
    }
    case Caller::State::Refused:
      // Both have called each other: this rank is called back, see `handle`.
      if (peer.caller->verdict() == Verdict::RankTaken) {
        peer.state = State::Awaited;
        peer.caller.reset();
        peer.callerFd = -1;
        return;
      }
      return giveUp(peer,
                    std::string("it refused this rank, which ") + text(peer.caller->verdict()));
    case Caller::State::Failed:
      return giveUp(peer, "it does not answer at " + peer.caller->why() + "; it has left, or died");
  }
}

/// A call has failed. Where it was made in advance, the peer may have done its part and left.
void TcpTransport::giveUp(Peer& peer, const std::string& why) {
  const auto waits = [](const Peer::Window& window) { return !window.waiting.empty(); };
  if (!peer.bound.empty() || !peer.unready.empty() || peer.link.hasOutput() ||
      std::any_of(std::begin(peer.windows), std::end(peer.windows), waits)) {
    return lose(peer, why);
  }
  peer.state = State::Unknown;
  peer.caller.reset();
  peer.callerFd = -1;
}

void TcpTransport::connected(Peer& peer, TcpSocket socket) {
  peer.caller.reset();
  peer.callerFd = -1;
  peer.link.open(std::move(socket));
  peer.state = State::Up;
  watch(peer.link.socket().get(), static_cast<uint64_t>(peer.rank), EPOLLIN, true);
  log(LogLevel::Debug, "connected to %s", describe(peer.rank).c_str());
  if (told_) return pushFailure(peer);
  flush(peer);
}

void TcpTransport::flush(Peer& peer) {
  if (peer.state != State::Up) return;
  const bool works = peer.link.write([this](void* owner, size_t bytes) {
    auto& message = *static_cast<Outbound*>(owner);
    message.moved += bytes;
    if (message.moved >= message.bytes) finish(message);
  });
  // A broken connection may still hold what the peer has said last: reading tells the end.
  const bool wants = works && peer.link.hasOutput();
  if (wants == peer.wantsToWrite) return;
  peer.wantsToWrite = wants;
  watch(peer.link.socket().get(), static_cast<uint64_t>(peer.rank),
        wants ? EPOLLIN | EPOLLOUT : EPOLLIN, false);
}

void TcpTransport::pollLink(Peer& peer, uint32_t events) {
  if ((events & EPOLLOUT) != 0) flush(peer);
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) == 0) return;
  const std::string ended = peer.link.read(peer);
  if (!ended.empty()) lose(peer, ended);
}

void TcpTransport::lose(Peer& peer, const std::string& why) {
  peer.state = State::Gone;
  peer.caller.reset();
  peer.callerFd = -1;
  peer.link.close();
  moved_ = true;
  if (peer.hasLeft || told_ || leaving_) return;
  report(Error(ErrorKind::PeerLost,
               describe(peer.rank) + " is lost to rank " + std::to_string(rank_) + ": " + why,
               {peer.rank}, {},
               "see its output for the reason, and the network between the hosts; make a new "
               "communicator to go on"));
}

void TcpTransport::report(const Error& error) {
  if (!failure_) failure_ = error;
  moved_ = true;
}

bool TcpTransport::poll() {
  std::optional<Error> failure;
  bool moved;
  {
    if (wanted_.load(std::memory_order_relaxed) > 0) return false;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;
    pollLocked(0);
    moved = std::exchange(moved_, false);
    failure.swap(failure_);
  }
  if (!moved) return false;
  if (failure) listener_.failed(*failure);
  wakeOwn();
  return true;
}

void TcpTransport::pollLocked(int waitMillis) {
  epoll_event events[32];
  const int n = ::epoll_wait(epoll_.get(), events, std::size(events), waitMillis);
  for (int i = 0; i < n; ++i) {
    try {
      handle(events[i].data.u64, events[i].events);
    } catch (const Error& error) {  // of the system: no descriptors are left, for example
      report(Error(error.kind(), describe(rank_) + ": " + error.what(), {rank_}));
    }
  }
}

void TcpTransport::handle(uint64_t id, uint32_t events) {
  if (id == kDoorman) {
    hosts_.doorman->poll(
        [this](const Introduction& who) {
          const Peer& peer = peerOf(who.rank);
          if (who.purpose != Purpose::Link) return Verdict::OtherTarget;
          // When both call each other, the call of the lower rank counts.
          const bool free = peer.state == State::Unknown || peer.state == State::Awaited ||
                            (peer.state == State::Calling && who.rank < rank_);
          return free ? Verdict::Welcome : Verdict::RankTaken;
        },
        [this](const Introduction& who, TcpSocket socket) {
          connected(peerOf(who.rank), std::move(socket));
        });
    return;
  }
  Peer& peer = peerOf(static_cast<int>(id & (kCallerBit - 1)));
  if ((id & kCallerBit) != 0) {
    if (peer.state == State::Calling) pollCaller(peer);
  } else if (peer.state == State::Up) {
    pollLink(peer, events);
  }
}

// --- What is known of the others -----------------------------------------------------------------

/// Keeps the peer's part of the board, as the peer itself does where memory is shared.
void TcpTransport::heard(Peer& peer, const FrameHeader& frame) {
  if (frame.what == 0 && frame.signature == 0) return;  // of no operation
  if (peer.isNear) return;
  Board::Control& control = board_.control(peer.rank);
  if (frame.name.lane == kMessageLane) {
    if (frame.type == FrameType::Data || frame.name == peer.lastMessage) return;
    peer.lastMessage = frame.name;
    OperationRecord record = operationOf(frame);
    control.messages.begin(record);
    return;
  }
  if (frame.name.sequence <= control.begun.load(std::memory_order_relaxed)) return;
  if (control.begun.load(std::memory_order_relaxed) != 0) {
    control.collectives.complete(peer.lastRecord);
  }
  peer.lastRecord = control.collectives.begin(operationOf(frame));
  control.begun.store(frame.name.sequence, std::memory_order_release);
}

std::string TcpTransport::describe(int rank) const {
  const Place& place = hosts_.places[rank];
  return "rank " + std::to_string(rank) + " on " +
         std::string(place.process.data(), ::strnlen(place.process.data(), place.process.size()));
}

uint64_t TcpTransport::refusedCallers() {
  const Lock lock(*this);
  return hosts_.doorman ? hosts_.doorman->refused() : 0;
}

int TcpTransport::connections() {
  const Lock lock(*this);
  return static_cast<int>(std::count_if(peers_.begin(), peers_.end(),
                                        [](const auto& peer) { return peer->state == State::Up; }));
}

// --- The end -------------------------------------------------------------------------------------

void TcpTransport::failureCame(Peer& peer, const std::string& text) {
  if (told_) return;
  report(parseFailure(text, peer.rank));
}

void TcpTransport::pushFailure(Peer& peer) {
  FrameHeader header{FrameType::Failure, static_cast<uint32_t>(toldText_.size()), {}};
  Link::Outgoing frame{header};
  const auto* bytes = reinterpret_cast<const std::byte*>(toldText_.data());
  frame.owned.assign(bytes, bytes + toldText_.size());
  peer.link.dropWaiting();  // of operations that have failed by now
  peer.link.push(std::move(frame), true);
  flush(peer);
}

void TcpTransport::tell(const Error& error) {
  const Lock lock(*this);
  if (told_) return;
  told_ = true;
  toldText_ = serializeFailure(error, rank_);
  for (const auto& peer : peers_) {
    if (peer->state == State::Up) pushFailure(*peer);
  }
  // The process may end in a moment, and would take with it what has not left. Who has just
  // accepted this rank's call, and does not know yet, would take this rank for the one that died.
  const int64_t giveUp = nowNanos() + std::chrono::nanoseconds(kTelling).count();
  const auto pending = [this] {
    return std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) {
      return peer->state == State::Calling || peer->state == State::Awaited ||
             (peer->state == State::Up && peer->link.hasOutput());
    });
  };
  while (pending() && nowNanos() < giveUp) pollLocked(1);
}

void TcpTransport::leave(std::chrono::milliseconds limit) {
  const Lock lock(*this);
  if (std::exchange(leaving_, true)) return;
  const int64_t giveUp = nowNanos() + std::chrono::nanoseconds(limit).count();
  for (const auto& peer : peers_) {
    if (peer->state != State::Up) continue;
    pushControl(*peer, FrameType::Goodbye, {}, 0, {});
  }
  // A socket that is closed while something is unread in it drops what it has not delivered yet: so
  // everything has to have arrived before.
  const auto pending = [this] {
    return std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) {
      return peer->state == State::Up &&
             (peer->link.hasOutput() || peer->link.socket().unacknowledged() > 0);
    });
  };
  while (pending() && nowNanos() < giveUp) pollLocked(1);
  for (const auto& peer : peers_) {
    peer->state = State::Gone;
    peer->caller.reset();
    peer->link.close();
  }
  hosts_.doorman.reset();
}

}  // namespace ctran
