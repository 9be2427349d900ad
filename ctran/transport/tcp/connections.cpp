// How connections begin and end.
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>

#include "ctran/base/clock.h"
#include "ctran/base/log.h"
#include "ctran/transport/tcp/failure.h"
#include "ctran/transport/tcp/peer.h"

namespace ctran {
namespace {

constexpr uint64_t kCallerBit = uint64_t{1} << 32;  // in epoll; links have their peer's rank
constexpr std::chrono::milliseconds kTelling{100};

}  // namespace

/// Begins to connect. What the connection is for has to be there already: a call may fail at once.
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
    peer.caller.reset();
    peer.callerFd = -1;
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
      return connected(peer, std::move(socket), State::Up);
    }
    case Caller::State::Refused:
      return giveUp(peer,
                    std::string("it refused this rank, which ") + text(peer.caller->verdict()));
    case Caller::State::Failed:
      return giveUp(peer, "it does not answer at " + peer.caller->why() + "; it has left, or died");
  }
}

/// A call has failed. Where nobody waits for the peer, it may have done its part and left.
void TcpTransport::giveUp(Peer& peer, const std::string& why) {
  peer.state = State::Unknown;
  peer.caller.reset();
  peer.callerFd = -1;
  pollDoorman();  // it may have called meanwhile
  if (peer.state == State::Unknown && peer.isNeeded()) lose(peer, why);
}

/// The caller of a connection that this rank has accepted has never used it: it has left, or died,
/// or was in two minds. Who waits for it calls back, which tells.
void TcpTransport::hungUp(Peer& peer) {
  peer.state = State::Unknown;
  peer.link.close();
  pollDoorman();
  if (peer.state == State::Unknown && !told_ && peer.isNeeded()) ensure(peer);
}

std::optional<Verdict> TcpTransport::admit(const Introduction& who) {
  if (who.purpose != Purpose::Link) return Verdict::OtherTarget;
  switch (peerOf(who.rank).state) {
    case State::Unknown:
      return Verdict::Welcome;
    case State::Calling:
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

void TcpTransport::pollDoorman() {
  if (!hosts_.doorman) return;
  hosts_.doorman->poll([this](const Introduction& who) { return admit(who); },
                       [this](const Introduction& who, TcpSocket socket) {
                         connected(peerOf(who.rank), std::move(socket), State::Accepted);
                       });
}

void TcpTransport::connected(Peer& peer, TcpSocket socket, State state) {
  peer.caller.reset();
  peer.callerFd = -1;
  peer.link.open(std::move(socket));
  peer.state = state;
  peer.wantsToWrite = false;
  watch(peer.link.socket().get(), static_cast<uint64_t>(peer.rank), EPOLLIN, true);
  log(LogLevel::Debug, "connected to %s", describe(peer.rank).c_str());
  if (state == State::Up) pushControl(peer, FrameType::Opened, {}, 0, {});
  if (told_) pushFailure(peer);
  if (leaving_) pushControl(peer, FrameType::Goodbye, {}, 0, {});
}

void TcpTransport::flush(Peer& peer) {
  if (!peer.isOpen()) return;
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
  const bool wasOpen = peer.isOpen();
  const std::string ended = peer.link.read(peer);
  if (!ended.empty()) {
    return peer.state == State::Accepted && !peer.link.hasHeard() ? hungUp(peer)
                                                                  : lose(peer, ended);
  }
  if (!wasOpen) flush(peer);
}

void TcpTransport::lose(Peer& peer, const std::string& why) {
  peer.state = State::Gone;
  peer.caller.reset();
  peer.callerFd = -1;
  peer.link.close();
  moved_ = true;
  if (peer.hasLeft || told_ || leaving_) return;
  // Whoever shares the board has said there that it leaves.
  const auto& state = board_.control(peer.rank).state;
  if (state.load(std::memory_order_acquire) == Board::RankState::Left) return;
  report(Error(ErrorKind::PeerLost,
               describe(peer.rank) + " is lost to rank " + std::to_string(rank_) + ": " + why,
               {peer.rank}, {},
               "see its output for the reason, and the network between the hosts; make a new "
               "communicator to go on"));
}

void TcpTransport::handle(uint64_t id, uint32_t events) {
  if (id == kDoorman) return pollDoorman();
  Peer& peer = peerOf(static_cast<int>(id & (kCallerBit - 1)));
  if ((id & kCallerBit) != 0) {
    if (peer.state == State::Calling) pollCaller(peer);
  } else if (peer.state == State::Up || peer.state == State::Accepted) {
    pollLink(peer, events);
  }
}

int TcpTransport::connections() {
  const Lock lock(*this);
  return static_cast<int>(std::count_if(peers_.begin(), peers_.end(), [](const auto& peer) {
    return peer->state == State::Up || peer->state == State::Accepted;
  }));
}

bool TcpTransport::mayHear(int rank) {
  const Lock lock(*this);
  const Peer& peer = peerOf(rank);
  return !peer.hasLeft && (peer.state == State::Up || peer.state == State::Accepted);
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
    if (peer->isOpen()) pushFailure(*peer);
  }
  // The process may end in a moment, and would take with it what has not left. Who has just
  // accepted this rank's call, and does not know yet, would take this rank for the one that died.
  const int64_t giveUp = nowNanos() + std::chrono::nanoseconds(kTelling).count();
  const auto pending = [this] {
    return std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) {
      return peer->state == State::Calling || (peer->isOpen() && peer->link.hasOutput());
    });
  };
  while (pending() && nowNanos() < giveUp) pollLocked(1);
}

void TcpTransport::leave(std::chrono::milliseconds limit) {
  const Lock lock(*this);
  if (std::exchange(leaving_, true)) return;
  const int64_t giveUp = nowNanos() + std::chrono::nanoseconds(limit).count();
  for (const auto& peer : peers_) {
    if (peer->isOpen()) pushControl(*peer, FrameType::Goodbye, {}, 0, {});
  }
  pollLocked(0);  // who has called, or has answered, hears it too
  // A socket that is closed while something is unread in it drops what it has not delivered yet: so
  // everything has to have arrived before. A call that nobody has answered yet needs no goodbye:
  // see State.
  const auto pending = [this] {
    return std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) {
      return peer->isOpen() && (peer->link.hasOutput() || peer->link.socket().unacknowledged() > 0);
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
