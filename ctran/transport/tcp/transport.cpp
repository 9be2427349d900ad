#include "ctran/transport/tcp/transport.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ctran/base/checked.h"
#include "ctran/transport/tcp/peer.h"

namespace ctran {

TcpTransport::TcpTransport(Board& board, Hosts hosts, Listener& listener,
                           std::optional<bool> failsOver)
    : board_(board),
      listener_(listener),
      hosts_(std::move(hosts)),
      rank_(board.rank()),
      size_(board.size()),
      ownAddresses_(hosts_.acceptor->addresses()),
      connectionsWanted_(wantedConnections()),
      failsOver_(failsOver),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      urgent_(::epoll_create1(EPOLL_CLOEXEC)),
      peers_(size_) {
  if (!epoll_ || !urgent_) throw systemError("epoll_create1", errno);
  watch(hosts_.acceptor->fd(), kAcceptor, EPOLLIN, true);
}

TcpTransport::~TcpTransport() {
  peers_.clear();  // nothing is read or written by devices any more
  // Other transports may use the same memory.
  for (const auto& device : devices_) regions_.named()->clearAt(*device);
}

TcpTransport::Peer& TcpTransport::peerOf(int rank) {
  return peers_.get(rank, [this, rank] {
    auto peer = std::make_unique<Peer>(*this, rank);
    peer->isNear = board_.isShared(rank);
    return peer;
  });
}

void TcpTransport::watch(int fd, uint64_t id, uint32_t events, bool isNew) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.get(), isNew ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) != 0) {
    throw systemError("epoll_ctl", errno);
  }
}

FrameHeader headerOf(FrameType type, size_t bytes, const Transmission& message, uint64_t offset) {
  FrameHeader header{type, static_cast<uint32_t>(bytes), message.name, offset};
  header.signature = message.operation.signature;
  header.what = message.operation.what;
  header.count = message.operation.count;
  return header;
}

void TcpTransport::wakeOwn() {
  // The counters' stores must not pass the look for sleepers; see Board::published.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  listener_.wakeUp();
}

// --- Messages ------------------------------------------------------------------------------------

std::unique_ptr<Inbound> TcpTransport::receive(const MessageName& name, int rank, std::byte* data,
                                               size_t bytes, const OperationRecord& operation) {
  auto message = std::make_unique<Inbound>(*this, name, rank, data, bytes, operation);
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
    if (bytes > kEagerBytes) {
      tell(peer, *message, FrameType::Ready);
      countBulk(peer, bytes);
    }
  } else if (bytes > kEagerBytes) {
    promise(peer, *message, FrameType::Ready);
    countBulk(peer, bytes);
  }
  ensure(peer);
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
  bytesSent_.fetch_add(bytes, std::memory_order_relaxed);
  Peer& peer = peerOf(rank);
  countSent(peer, bytes);
  if (bytes > kEagerBytes) countBulk(peer, bytes);
  if (bytes <= kEagerBytes) {
    peer.windows[name.queue].waiting.push_back(message.get());
    admitWaiting(peer, name.queue);
  } else if (const auto ready = peer.ready.find(name); ready != peer.ready.end()) {
    message->other = ready->second.other;
    const std::optional<IbTarget> target = ready->second.target;
    peer.ready.erase(ready);
    if (message->other.bytes != bytes) {
      finishWrong(*message, message->other);
    } else {
      pushData(peer, *message, target);
    }
  } else {
    peer.unready[name] = message.get();
    promise(peer, *message, FrameType::Announce);
  }
  ensure(peer);
  return message;
}

void TcpTransport::countSent(Peer& peer, size_t bytes) {
  if (recording_ == nullptr) return;
  if (peer.recorded == nullptr) peer.recorded = recording_->link(peer.rank);
  if (peer.recorded == nullptr) return;
  using Over = RecordedLink::Transport;
  RecordedLink::add(peer.recorded->sent, bytes);
  const Over over = peer.sendsOverRdma() ? Over::Rdma : Over::Tcp;
  peer.recorded->transport.store(static_cast<uint64_t>(over), std::memory_order_relaxed);
}

/// A message has come, or been announced, that is not bound: threads that wait for any have to
/// look.
void TcpTransport::offer(const MessageName& name) {
  if (name.queue != kMessageQueue) return;
  offers_.fetch_add(1, std::memory_order_release);
  moved_ = true;
}

bool TcpTransport::hasOffer(const MessageName& name, int rank) {
  const Lock lock(*this);
  const Peer* const peer = peers_.find(rank);
  if (peer == nullptr) return false;
  return peer->early.count(name) != 0 || peer->announced.count(name) != 0 ||
         (rank == rank_ && peer->unready.count(name) != 0);
}

void TcpTransport::pushControl(Peer& peer, FrameType type, const MessageName& name, uint64_t offset,
                               const OperationRecord& operation) {
  FrameHeader header{type, 0, name, offset};
  header.signature = operation.signature;
  header.what = operation.what;
  header.count = operation.count;
  peer.push({header});
  flush(peer);
}

/// Tells the peer of a message, or keeps that for later, because the peer takes only kMaxPromises
/// that it has not come to. The message moves when either end has been told of the other. If both
/// are kept back it waits until messages of which the ends were told have moved.
void TcpTransport::promise(Peer& peer, Transmission& message, FrameType type) {
  if (peer.promises(type).told < kMaxPromises) return tell(peer, message, type);
  peer.promises(type).later.insert(message.name);
}

void TcpTransport::tell(Peer& peer, Transmission& message, FrameType type) {
  Peer::Promises& promises = peer.promises(type);
  promises.later.erase(message.name);
  ++promises.told;
  message.isTold = true;
  std::optional<IbTarget> target;
  if (type == FrameType::Ready) target = grant(peer, static_cast<const Inbound&>(message));
  if (!target) return pushControl(peer, type, message.name, message.bytes, message.operation);
  Link::Outgoing frame{headerOf(type, kTargetBytes, message, message.bytes)};
  const auto* bytes = reinterpret_cast<const std::byte*>(&*target);
  frame.owned.assign(bytes, bytes + sizeof *target);
  peer.push(std::move(frame));
  flush(peer);
}

/// The peer has come to the message: there is room for another.
void TcpTransport::kept(Peer& peer, Transmission& message, FrameType type) {
  Peer::Promises& promises = peer.promises(type);
  promises.later.erase(message.name);
  if (!std::exchange(message.isTold, false)) return;
  --promises.told;
  while (promises.told < kMaxPromises && !promises.later.empty()) {
    const MessageName name = *promises.later.begin();
    if (type == FrameType::Ready) {
      tell(peer, *peer.bound.at(name), type);
    } else {
      tell(peer, *peer.unready.at(name), type);
    }
  }
}

void TcpTransport::admitWaiting(Peer& peer, uint32_t queue) {
  Peer::Window& window = peer.windows[queue];
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
  peer.push(
      {headerOf(FrameType::Eager, message.bytes, message, 0), message.data, ownerOf(message)});
}

void TcpTransport::pushData(Peer& peer, Outbound& message, const std::optional<IbTarget>& target) {
  if (auto placement = placementOf(peer, message, target)) {
    pushPlaced(peer, message, std::move(placement));
    return flush(peer);
  }
  for (size_t offset = 0; offset < message.bytes; offset += kFrameBytes) {
    const size_t bytes = std::min(kFrameBytes, message.bytes - offset);
    peer.bulk.push_back({headerOf(FrameType::Data, bytes, message, offset), message.data + offset,
                         ownerOf(message)});
  }
  flush(peer);
}

void TcpTransport::received(Inbound& message, size_t bytes) {
  message.moved += bytes;
  if (message.moved < message.bytes) return;
  Peer& peer = peerOf(message.peer);
  peer.bound.erase(message.name);
  peer.granted.erase(message.name);
  if (message.bytes > kEagerBytes) kept(peer, message, FrameType::Ready);
  // Nothing is left to come from an honest peer; in any case the memory is the user's again.
  for (const auto& connection : peer.connections) connection->letGo(message);
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
  if (bound != peer.bound.end() && bound->second == &message) {
    for (const auto& connection : peer.connections) connection->letGo(*bound->second);
    peer.bound.erase(bound);
    peer.granted.erase(message.name);
    peer.readiness.later.erase(message.name);
  }
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
  consume(peer, name.queue, bytes);
}

void TcpTransport::consume(Peer& peer, uint32_t queue, size_t bytes) {
  Peer::Window& window = peer.windows[queue];
  window.consumed += eagerCost(bytes);
  if (window.consumed < kEagerWindow / 4 || peer.state() != State::Up) return;
  window.held -= window.consumed;
  MessageName name;
  name.queue = queue;
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
  Peer::Window& window = self.windows[message.name.queue];
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
    self.windows[message.name.queue].used -= eagerCost(found->second.data.size());
    take(found->second.data.data(), found->second.data.size(), found->second.operation);
    self.early.erase(found);
  } else if (const auto waiting = self.unready.find(message.name); waiting != self.unready.end()) {
    Outbound& outbound = *waiting->second;
    self.unready.erase(waiting);
    take(outbound.data, outbound.bytes, outbound.operation);
    finish(outbound);
  }
}

void TcpTransport::release(Inbound& message) {
  const Lock lock(*this);
  Peer& peer = peerOf(message.peer);
  const auto found = peer.bound.find(message.name);
  if (found == peer.bound.end() || found->second != &message) return;
  peer.bound.erase(found);
  peer.readiness.later.erase(message.name);
  if (message.bytes > kEagerBytes) peer.forsaken.insert(message.name);
  // The peer may be writing to it: nothing does any more when this has returned.
  if (peer.granted.erase(message.name) > 0) {
    for (const auto& rail : peer.rails) {
      if (rail->link) rail->link->close();
    }
  }
  for (const auto& connection : peer.connections) connection->letGo(message);
}

void TcpTransport::release(Outbound& message) {
  const Lock lock(*this);
  if (message.progress.load(std::memory_order_relaxed) != 0) return;
  Peer& peer = peerOf(message.peer);
  std::erase(peer.windows[message.name.queue].waiting, &message);
  const auto found = peer.unready.find(message.name);
  if (found != peer.unready.end() && found->second == &message) {
    peer.unready.erase(found);
    peer.announcements.later.erase(message.name);
  }
  void* const owner = ownerOf(message);
  const auto isOfIt = [owner](const Link::Outgoing& frame) { return frame.owner == owner; };
  std::erase_if(peer.bulk, isOfIt);
  std::erase_if(peer.held, isOfIt);
  for (const auto& connection : peer.connections) connection->link.forget(owner);
  for (const auto& rail : peer.rails) {
    if (rail->link) rail->link->forget(owner);
  }
}

// --- Polling -------------------------------------------------------------------------------------

void TcpTransport::report(const Error& error) {
  if (!failure_) failure_ = error;
  moved_ = true;
}

bool TcpTransport::poll() {
  std::optional<Error> failure;
  std::vector<int> left;
  bool moved;
  {
    if (wanted_.load(std::memory_order_relaxed) > 0) return false;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;
    pollLocked(0);
    moved = std::exchange(moved_, false);
    failure.swap(failure_);
    left.swap(left_);
  }
  if (!moved) return false;
  if (failure) listener_.failed(*failure);
  // A rank that has failed and left counts as failed.
  for (const int rank : left) {
    board_.control(rank).state.store(Board::RankState::Left, std::memory_order_release);
  }
  wakeOwn();
  return true;
}

void TcpTransport::pollLocked(int waitMillis) {
  // First what has arrived, then whether its sender has left, or failed.
  if (pollRdma()) waitMillis = 0;
  epoll_event events[32];
  const int n = ::epoll_wait(epoll_.get(), events, std::size(events), waitMillis);
  for (int i = 0; i < n; ++i) {
    try {
      handle(events[i].data.u64, events[i].events);
    } catch (const Error& error) {  // of the system: no descriptors are left, for example
      report(Error(error.kind(), describe(rank_) + ": " + error.what(), {rank_}));
    } catch (const std::exception& error) {
      report(Error(ErrorKind::System, describe(rank_) + ": " + error.what(), {rank_}));
    }
  }
  const auto isArmed = [](const auto& device) { return device->isArmed(); };
  if (!std::all_of(devices_.begin(), devices_.end(), isArmed)) pollRdma();
}

// --- What is known of the others -----------------------------------------------------------------

/// Keeps the peer's part of the board, as the peer itself does where memory is shared.
void TcpTransport::heard(Peer& peer, const FrameHeader& frame) {
  if (frame.what == 0 && frame.signature == 0) return;  // of no operation
  if (peer.isNear) return;
  Board::Control& control = board_.control(peer.rank);
  if (frame.name.queue == kMessageQueue) {
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
  return "rank " + std::to_string(rank) + " on " + hosts_.places.describe(rank);
}

uint64_t TcpTransport::refusedCallers() {
  const Lock lock(*this);
  return hosts_.acceptor ? hosts_.acceptor->refused() : 0;
}

}  // namespace ctran
