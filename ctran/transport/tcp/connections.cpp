// How connections begin and end.
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "ctran/base/clock.h"
#include "ctran/base/log.h"
#include "ctran/os/tcp_usage.h"
#include "ctran/transport/tcp/failure.h"
#include "ctran/transport/tcp/peer.h"

namespace ctran {
namespace {

// The layout of ids in epoll: connections have the rank of their peer, and their number beside it.
constexpr int kNumberShift = 32;
constexpr uint64_t kConnectorBit = uint64_t{1} << 40;
constexpr std::chrono::milliseconds kTelling{100};

uint64_t idOf(int rank, uint32_t number) {
  return static_cast<uint64_t>(rank) | uint64_t{number} << kNumberShift;
}

}  // namespace

/// Returns whether a rank is on this machine, as far as is known.
bool TcpTransport::isOnThisMachine(int rank) const {
  return hosts_.places.areOnOneMachine(rank, rank_);
}

std::vector<NetAddress> TcpTransport::addressesOf(int rank) const {
  return byReach(hosts_.places.addressesOf(rank), ownAddresses_, isOnThisMachine(rank));
}

/// Begins to connect. What the connection is for has to be there already: a call may fail at once.
void TcpTransport::ensure(Peer& peer) {
  if (peer.state() != State::Unknown || leaving_) return;
  try {
    call(peer.first(), addressesOf(peer.rank), {}, Purpose::Link);
  } catch (const Error& error) {  // of this rank: it may have no descriptor left
    throw Error(error.kind(), describe(rank_) + ": " + error.what(), {rank_});
  }
}

void TcpTransport::call(Connection& connection, const std::vector<NetAddress>& addresses,
                        const NetAddress& from, Purpose purpose) {
  connection.state = State::Connecting;
  try {
    connection.connector = std::make_unique<Connector>(
        addresses, hosts_.key, Introduction{rank_, size_, connection.peer.rank, purpose}, from);
    pollConnector(connection);
  } catch (const Error&) {
    connection.state = State::Unknown;
    connection.stopConnecting();
    throw;
  }
}

void TcpTransport::connect(int rank) {
  const Waking lock(*this);
  ensure(peerOf(rank));
}

void TcpTransport::pollConnector(Connection& connection) {
  Connector& connector = *connection.connector;
  switch (connector.poll()) {
    case Connector::State::Pending:
      if (connector.fd() != connection.connectorFd) {
        connection.connectorFd = connector.fd();
        watch(connector.fd(), kConnectorBit | idOf(connection.peer.rank, connection.index), EPOLLIN,
              true);
      }
      return;
    case Connector::State::Welcome: {
      TcpSocket socket = connector.takeSocket();
      if (connection.connectorFd == socket.get()) {
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
      }
      return connected(connection, std::move(socket), State::Up);
    }
    case Connector::State::Refused:
      return giveUp(connection,
                    std::string("it refused this rank, which ") + text(connector.verdict()));
    case Connector::State::Failed:
      return giveUp(connection,
                    "it does not answer at " + connector.why() + "; it has left, or died");
  }
}

/// A call has failed. If no operation waits for the peer, it may have done its part and left.
void TcpTransport::giveUp(Connection& connection, const std::string& why) {
  Peer& peer = connection.peer;
  connection.state = State::Unknown;
  connection.stopConnecting();
  if (!connection.isFirst()) return doWithout(peer, why);
  pollAcceptor();  // it may have called meanwhile
  if (peer.state() == State::Unknown && peer.isNeeded()) lose(peer, why);
}

/// The caller of a connection that this rank has accepted has never used it: it has left, or died,
/// or was in two minds. Who waits for it calls back, which tells.
void TcpTransport::hungUp(Connection& connection) {
  Peer& peer = connection.peer;
  connection.close(State::Unknown);
  if (!connection.isFirst()) return checkLeft(peer);
  pollAcceptor();
  if (peer.state() == State::Unknown && !told_ && peer.isNeeded()) ensure(peer);
}

std::optional<Verdict> TcpTransport::admit(const Introduction& who) {
  Peer& peer = peerOf(who.rank);
  if (who.purpose == Purpose::More) {
    const bool may = peer.isThere() && hosts_.acceptor->hasSpare() && unused(peer) != nullptr;
    return may ? Verdict::Welcome : Verdict::Enough;
  }
  if (who.purpose != Purpose::Link) return Verdict::OtherTarget;
  switch (peer.state()) {
    case State::Unknown:
      return Verdict::Welcome;
    case State::Connecting:
      if (who.rank < rank_) return Verdict::Welcome;
      return std::nullopt;  // its own call of this rank is on the way: see State
    case State::Accepted:
      return std::nullopt;  // it may have hung up on the one before, and the news not be here yet
    case State::Up:
    case State::Gone:
      break;
  }
  return Verdict::RankTaken;
}

void TcpTransport::pollAcceptor() {
  if (!hosts_.acceptor) return;
  heedCallers(true);
  try {
    hosts_.acceptor->poll([this](const Introduction& who) { return admit(who); },
                          [this](const Introduction& who, TcpSocket socket) {
                            Peer& peer = peerOf(who.rank);
                            Connection& connection =
                                who.purpose == Purpose::More ? *unused(peer) : peer.first();
                            connected(connection, std::move(socket), State::Accepted);
                          });
  } catch (const Error& error) {
    const auto doesNotNeedIt = [this](const Peer& peer) {
      const bool ownCallCounts = rank_ < peer.rank;  // if both call: see State
      return peer.rank == rank_ || (peer.state() != State::Unknown &&
                                    (peer.state() != State::Connecting || ownCallCounts));
    };
    int mayNeedIt = size_;
    peers_.forEach([&](int, const Peer& peer) { mayNeedIt -= doesNotNeedIt(peer) ? 1 : 0; });
    // This rank itself is only there when it has sent itself something.
    if (peers_.find(rank_) == nullptr) --mayNeedIt;
    if (error.op() != kMakingSockets || mayNeedIt > 0) throw;
    // A caller already has a connection, or gets this rank's call, and goes on while this rank
    // calls.
    log(LogComponent::Transport, LogLevel::Info, "rank %d hears no more callers: %s", rank_,
        error.what());
    heedCallers(false);
  }
}

/// Sets whether callers wake this rank.
void TcpTransport::heedCallers(bool heeds) {
  if (std::exchange(heedsCallers_, heeds) == heeds) return;
  if (heeds) {
    watch(hosts_.acceptor->fd(), kAcceptor, EPOLLIN, true);
  } else {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, hosts_.acceptor->fd(), nullptr);
  }
}

void TcpTransport::connected(Connection& connection, TcpSocket socket, State state) {
  Peer& peer = connection.peer;
  connection.stopConnecting();
  connection.link.open(std::move(socket));
  connection.state = state;
  connection.wantsToWrite = false;
  watch(connection.link.socket().get(), idOf(peer.rank, connection.index), EPOLLIN, true);
  log(LogComponent::Transport, LogLevel::Debug, "connected to %s%s", describe(peer.rank).c_str(),
      connection.isFirst() ? "" : " once more");
  if (state == State::Up) say(connection, FrameType::Opened);
  if (connection.isFirst()) {
    // The caller's card comes first, and is answered soon, see offer().
    if (state == State::Accepted) watchUrgently(connection.link.socket().get(), true);
    if (state == State::Up) offer(peer, peer.main());
  }
  if (told_ && connection.isFirst()) pushFailure(peer);
  if (leaving_) say(connection, FrameType::Goodbye);
  callMore(peer);
}

void TcpTransport::say(Connection& connection, FrameType what) {
  connection.link.push({FrameHeader{what, 0, {}}});
  flush(connection.peer);
}

/// `bytes` of a message's memory may be used again; finishes the message after the last of them.
void TcpTransport::written(void* owner, size_t bytes) {
  auto& message = *static_cast<Transmission*>(owner);
  message.moved += bytes;
  if (message.moved >= message.bytes) finish(message);
}

void TcpTransport::flush(Peer& peer) {
  const auto written = [this](void* owner, size_t bytes) { this->written(owner, bytes); };
  static Link::Frames nothing;  // stays so
  for (const auto& connection : peer.connections) {
    while (connection->isOpen() && connection->link.write(nothing, SIZE_MAX, written)) continue;
  }
  writeOverRdma(peer, written);
  while (!peer.bulk.empty() && !peer.sendsOverRdma()) {
    Connection* const connection = peer.emptiest();
    if (connection == nullptr) break;
    connection->link.write(peer.bulk, kFrameBytes, written);
  }
  recordUse(peer);
  for (const auto& connection : peer.connections) {
    if (!connection->isOpen()) continue;
    // A broken connection may still hold what the peer has said last: reading tells the end.
    const bool wants = connection->link.hasOutput() && !connection->link.isBroken();
    if (wants == connection->wantsToWrite) continue;
    connection->wantsToWrite = wants;
    watch(connection->link.socket().get(), idOf(peer.rank, connection->index),
          wants ? EPOLLIN | EPOLLOUT : EPOLLIN, false);
  }
}

/// Now and then records how the connections to a peer are used: that tells how fast the way is.
void TcpTransport::recordUse(Peer& peer) {
  constexpr int64_t kEveryNanos = 20'000'000;
  if (peer.recorded == nullptr) return;
  const int64_t now = nowNanos();
  if (now - peer.lookedAt < kEveryNanos) return;
  peer.lookedAt = now;
  uint64_t arrived = 0;
  int64_t busy = 0;
  for (const auto& connection : peer.connections) {
    if (!connection->isOpen()) continue;
    const auto usage = tcpUsage(connection->link.socket());
    if (!usage) return;
    arrived += usage->acknowledged;
    busy = std::max(busy, usage->busyNanos);  // they share the way at the same time
  }
  peer.recorded->arrived.store(arrived, std::memory_order_relaxed);
  peer.recorded->busyNanos.store(static_cast<uint64_t>(busy), std::memory_order_relaxed);
}

void TcpTransport::pollLink(Connection& connection, uint32_t events) {
  Peer& peer = connection.peer;
  if ((events & EPOLLOUT) != 0) flush(peer);
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) == 0) return;
  const bool wasOpen = connection.isOpen();
  std::string why;
  try {
    why = connection.link.read(connection);
  } catch (const std::bad_alloc&) {
    why = "there is no memory for what it sends";
  }
  if (!why.empty()) return ended(connection, why);
  if (!wasOpen) flush(peer);
}

void TcpTransport::ended(Connection& connection, const std::string& why) {
  Peer& peer = connection.peer;
  if (connection.hasLeft) {  // as it said; others may still hold what it has sent before
    connection.close(State::Gone);
    moved_ = true;
    return;
  }
  if (connection.state == State::Accepted && !connection.link.hasHeard() &&
      (peer.connectionsThere() == 1 || !connection.isFirst())) {
    return hungUp(connection);
  }
  lose(peer, why);
}

/// The peer has said goodbye on a connection, or one that it has never used has ended. It has left
/// when there is none that may still bring something.
void TcpTransport::checkLeft(Peer& peer) {
  const auto mayBring = [](const auto& each) { return each->isThere() && !each->hasLeft; };
  if (!peer.first().hasLeft || peer.hasLeft) return;
  const auto mayBringOver = [&](const auto& rail) {
    return rail->saysLost || mayBring(&rail->reader);
  };
  if (std::any_of(peer.rails.begin(), peer.rails.end(), mayBringOver)) return;
  if (std::any_of(peer.connections.begin(), peer.connections.end(), mayBring)) return;
  peer.hasLeft = true;
  left_.push_back(peer.rank);
  moved_ = true;
}

void TcpTransport::lose(Peer& peer, const std::string& why) {
  for (const auto& connection : peer.connections) connection->close(State::Gone);
  closeRdma(peer, why);
  moved_ = true;
  if (peer.hasLeft || told_ || leaving_) return;
  // A rank that shares the board has said there that it leaves.
  const Board::Control* const control = board_.find(peer.rank);
  const bool hasLeft = control != nullptr &&
                       control->state.load(std::memory_order_acquire) == Board::RankState::Left;
  if (hasLeft) return;
  report(Error(ErrorKind::PeerLost,
               describe(peer.rank) + " is lost to rank " + std::to_string(rank_) + ": " + why,
               {peer.rank}, {},
               "see its output for the reason, and the network between the hosts; make a new "
               "communicator to go on"));
}

void TcpTransport::handle(uint64_t id, uint32_t events) {
  if (id == kAcceptor) return pollAcceptor();
  if (id >= kDevices) return rdmaWoke(id - kDevices);
  const auto number = static_cast<uint32_t>((id & (kConnectorBit - 1)) >> kNumberShift);
  Connection& connection = *peerOf(static_cast<int>(static_cast<uint32_t>(id))).connections[number];
  if ((id & kConnectorBit) != 0) {
    if (connection.state == State::Connecting) pollConnector(connection);
  } else if (connection.isThere()) {
    pollLink(connection, events);
  }
}

int TcpTransport::connections() {
  const Lock lock(*this);
  int count = 0;
  peers_.forEach([&](int, const Peer& peer) { count += peer.isThere() ? 1 : 0; });
  return count;
}

int TcpTransport::connections(int rank) {
  const Lock lock(*this);
  const Peer* const peer = peers_.find(rank);
  return peer == nullptr ? 0 : peer->connectionsThere();
}

int64_t TcpTransport::silentNanos(int rank) {
  const Lock lock(*this);
  const Peer* const peer = peers_.find(rank);
  int64_t longest = 0;
  if (peer == nullptr) return longest;
  for (const auto& connection : peer->connections) {
    if (!connection->isOpen()) continue;
    longest = std::max(longest, ctran::silentNanos(connection->link.socket()));
  }
  return longest;
}

bool TcpTransport::mayHear(int rank) {
  const Lock lock(*this);
  const Peer* const peer = peers_.find(rank);
  if (peer == nullptr || peer->hasLeft) return false;
  const auto mayRead = [](const auto& rail) {
    return rail->reader.isThere() && !rail->reader.hasLeft;
  };
  return peer->connectionsThere() > 0 ||
         std::any_of(peer->rails.begin(), peer->rails.end(), mayRead);
}

// --- The end -------------------------------------------------------------------------------------

void TcpTransport::failureCame(Peer& peer, const std::string& text) {
  if (told_) return;
  report(parseFailure(text, peer.rank, size_));
}

void TcpTransport::pushFailure(Peer& peer) {
  FrameHeader header{FrameType::Failure, static_cast<uint32_t>(toldText_.size()), {}};
  Link::Outgoing frame{header};
  const auto* bytes = reinterpret_cast<const std::byte*>(toldText_.data());
  frame.owned.assign(bytes, bytes + toldText_.size());
  // What waits is of operations that have failed by now.
  peer.bulk.clear();
  peer.first().link.dropWaiting();
  for (const auto& rail : peer.rails) {
    if (rail->link) rail->link->dropWaiting();
  }
  peer.first().link.push(std::move(frame));
  flush(peer);
}

void TcpTransport::tell(const Error& error) {
  const Lock lock(*this);
  if (told_) return;
  told_ = true;
  toldText_ = serializeFailure(error, rank_);
  peers_.forEach([this](int, Peer& peer) {
    if (peer.first().isOpen()) pushFailure(peer);
  });
  // The process may end in a moment, and would take with it what has not left. Who has just
  // accepted this rank's call, and does not know yet, would take this rank for the one that died.
  const int64_t giveUp = nowNanos() + std::chrono::nanoseconds(kTelling).count();
  const auto pending = [this] {
    bool any = false;
    peers_.forEach([&](int, const Peer& peer) {
      const Connection& first = peer.first();
      any |= first.state == State::Connecting || (first.isOpen() && first.link.hasOutput());
    });
    return any;
  };
  while (pending() && nowNanos() < giveUp) pollLocked(1);
}

void TcpTransport::leave(std::chrono::milliseconds limit) {
  const Lock lock(*this);
  if (std::exchange(leaving_, true)) return;
  const int64_t giveUp = nowNanos() + std::chrono::nanoseconds(limit).count();
  peers_.forEach([this](int, Peer& peer) {
    // What a rail that has failed holds is still to go over the first connection, its goodbye last.
    const bool isOwed = std::any_of(peer.rails.begin(), peer.rails.end(),
                                    [](const auto& rail) { return rail->sends && rail->saysLost; });
    for (const auto& connection : peer.connections) {
      if (connection->isOpen() && !(isOwed && connection->isFirst())) {
        say(*connection, FrameType::Goodbye);
      }
    }
    for (const auto& rail : peer.rails) {
      if (rail->sends) rail->link->push({FrameHeader{FrameType::Goodbye, 0, {}}});
    }
    if (peer.isThere()) flush(peer);
  });
  pollLocked(0);  // who has called, or has answered, hears it too
  // A socket that is closed while something is unread in it drops what it has not delivered yet: so
  // everything has to have arrived before. A call that nobody has answered yet needs no goodbye:
  // see State.
  const auto holds = [](const auto& connection) {
    const Link& link = connection->link;
    return connection->isOpen() && (link.hasOutput() || link.socket().unacknowledged() > 0);
  };
  const auto pending = [this, &holds] {
    bool any = false;
    peers_.forEach([&](int, const Peer& peer) {
      // What a rail that has failed holds goes over the connection when the peer answers.
      const auto writes = [&peer](const auto& rail) {
        return rail->sends && rail->link->hasOutput() &&
               (!rail->link->hasFailed() || (rail->saysLost && peer.first().isOpen()));
      };
      any |= std::any_of(peer.rails.begin(), peer.rails.end(), writes) ||
             std::any_of(peer.connections.begin(), peer.connections.end(), holds);
    });
    return any;
  };
  while (pending() && nowNanos() < giveUp) pollLocked(1);
  peers_.forEach([this](int, Peer& peer) {
    for (const auto& connection : peer.connections) connection->close(State::Gone);
    closeRdma(peer, "this rank has left");
  });
  hosts_.acceptor.reset();
}

}  // namespace ctran
