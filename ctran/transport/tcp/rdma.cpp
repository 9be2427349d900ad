// RDMA beside the connection to a peer. It begins as the connection is there: messages go over TCP
// until a write has passed, so nobody waits for it. Each direction changes over for itself. What
// happens when it fails: rdma_lost.cpp.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ctran/base/clock.h"
#include "ctran/base/log.h"
#include "ctran/transport/tcp/peer.h"

namespace ctran {
namespace {

static_assert(sizeof(IbCard) == kCardBytes);

constexpr std::chrono::milliseconds kLook{100};

/// Returns whether the peer has closed its end. To write there would have its host reset the
/// connection, and this one drop what it has not read yet.
bool hasHungUp(const TcpSocket& socket) {
  pollfd look{socket.get(), POLLRDHUP, 0};
  return ::poll(&look, 1, 0) > 0 && (look.revents & POLLRDHUP) != 0;
}

}  // namespace

void TcpTransport::openDevices() {
  if (areDevicesOpen_) return;
  areDevicesOpen_ = true;
  IbSettings settings = IbSettings::fromEnvironment();
  settings.failsOver = failsOver_.value_or(settings.failsOver);
  devices_ = IbDevice::openAll(settings, size_ - 1, whyNoDevices_);
  if (devices_.size() > kMaxWays) devices_.resize(kMaxWays);
  if (devices_.empty()) {
    log(LogComponent::Transport, LogLevel::Debug, "rank %d uses no RDMA: %s", rank_,
        whyNoDevices_.c_str());
    return;
  }
  timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer_) {
    whyNoDevices_ = systemError("timerfd_create", errno).what();
    devices_.clear();
    return;
  }
  const size_t count = devices_.size();
  for (size_t i = 0; i < count; ++i) {
    watch(devices_[i]->fd(), kDevices + i, EPOLLIN, true);
    watch(devices_[i]->eventFd(), kDevices + count + i, EPOLLIN, true);
    watchUrgently(devices_[i]->eventFd(), true);
  }
  watch(timer_.get(), kDevices + 2 * count, EPOLLIN, true);
  watchUrgently(timer_.get(), true);
}

void TcpTransport::watchUrgently(int fd, bool watches) {
  epoll_event event{};
  event.events = EPOLLIN;
  // One that is there already, or has been closed meanwhile, is no matter.
  ::epoll_ctl(urgent_.get(), watches ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event);
}

/// Makes the timer wake this rank, unless it does so anyway.
void TcpTransport::lookAgain(std::chrono::nanoseconds after) {
  if (std::exchange(isTimerSet_, true)) return;
  itimerspec when{};
  when.it_value.tv_nsec = after.count();
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);
}

/// Something has happened that a device, or the timer, woke this rank for.
void TcpTransport::rdmaWoke(size_t which) {
  const size_t count = devices_.size();
  if (which < count) return devices_[which]->disarm();
  if (which < 2 * count) {
    devices_[which - count]->pollEvents();
  } else {
    uint64_t times = 0;
    [[maybe_unused]] const ssize_t n = ::read(timer_.get(), &times, sizeof times);
    isTimerSet_ = false;
  }
  pollRdma();
}

/// Pairs of ranks take turns at the nearest devices, alike at both ends, and so do a pair's rails,
/// and the attempts at one; these come to the others then. Nothing if none can be used.
std::optional<size_t> TcpTransport::deviceFor(const Peer& peer, const Rail& rail) const {
  const size_t count = devices_.size(), near = countNearest(devices_);
  const size_t turn = static_cast<size_t>(rank_) + static_cast<size_t>(peer.rank);
  for (size_t i = rail.index + rail.attempts, end = i + count; i < end; ++i) {
    const size_t at = i % count;
    const size_t device = at < near ? (turn + at) % near : at;
    if (devices_[device]->isUsable()) return device;
  }
  return std::nullopt;
}

TcpTransport::Rail& TcpTransport::railOf(Peer& peer, uint32_t index) {
  while (peer.rails.size() <= index) {
    peer.rails.push_back(std::make_unique<Rail>(peer, static_cast<uint32_t>(peer.rails.size())));
  }
  return *peer.rails[index];
}

TcpTransport::Rail& TcpTransport::railOf(Peer& peer, const FrameHeader& frame) {
  if (frame.name.buffer >= kMaxRails) throw std::string("it speaks of an unknown rail");
  return railOf(peer, frame.name.buffer);
}

void TcpTransport::sayOf(Peer& peer, const Rail& rail, FrameType what, uint64_t offset) {
  peer.first().link.push({FrameHeader{what, 0, {kCollectiveQueue, rail.index, 0}, offset}});
  flush(peer);
}

/// Sends this rank's card.
void TcpTransport::offer(Peer& peer, Rail& rail) {
  if (rail.hasOffered || leaving_ || told_) return;
  rail.hasOffered = true;
  const TcpSocket& socket = peer.first().link.socket();
  if (rail.index == 0) watchUrgently(socket.get(), false);
  if (hasHungUp(socket)) return;
  openDevices();
  std::string& why = peer.whyNoRdma;
  if (devices_.empty()) {
    why = whyNoDevices_;
    return;
  }
  const std::optional<size_t> number = deviceFor(peer, rail);
  if (!number) return;
  IbDevice& device = *devices_[*number];
  IbCard card;
  card.devices =
      static_cast<uint32_t>(std::min<size_t>(countNearest(devices_), device.settings().rails));
  card.ways = static_cast<uint32_t>(devices_.size());
  card.device = static_cast<uint32_t>(*number);
  auto made = IbLink::create(device, rail.index, card);
  if (!made) {
    if (rail.index == 0) why = made.error().errStr;
    log(LogComponent::Transport, LogLevel::Warn, "no RDMA from rank %d to %s over %s: %s", rank_,
        describe(peer.rank).c_str(), device.name().c_str(), made.error().errStr.c_str());
    return;
  }
  rail.link = *std::move(made);
  // The peer is answered at once, though this rank be in no call: one that has sent, and leaves
  // before the answer, drops what has not arrived. Later on the connection tells of nothing but
  // failures and ends.
  if (rail.index == 0) watchUrgently(socket.get(), true);
  if (why.empty()) why = "RDMA is not agreed yet";
  pushCard(peer, rail, rail.link->card());
  flush(peer);
}

void TcpTransport::pushCard(Peer& peer, const Rail& rail, const IbCard& card) {
  FrameHeader header{FrameType::Card, sizeof(IbCard), {kCollectiveQueue, rail.index, 0}};
  Link::Outgoing frame{header};
  const auto* bytes = reinterpret_cast<const std::byte*>(&card);
  frame.owned.assign(bytes, bytes + sizeof(IbCard));
  peer.first().link.push(std::move(frame));
}

/// The rails beside the first, for pairs that move much.
void TcpTransport::offerMore(Peer& peer) {
  if (peer.bulkBytes < kBulkBytes || !peer.sendsOverRdma() || peer.main().link->hasFailed()) return;
  const size_t both = std::min<size_t>(countNearest(devices_), peer.main().link->remote().devices);
  const auto count =
      static_cast<uint32_t>(std::min<size_t>(both, devices_.front()->settings().rails));
  for (uint32_t i = 1; i < count; ++i) offer(peer, railOf(peer, i));
}

/// A card that no peer sends ends the connection; one that does not go with this rank's leaves it
/// without RDMA. A rank that cannot use RDMA says so with what it sends next: it does not watch the
/// connection while it is in no call, see offer().
void TcpTransport::cardCame(Peer& peer, Rail& rail) {
  IbCard card;
  std::memcpy(&card, rail.card.data(), sizeof card);
  if (const char* why = whyInvalid(card)) throw std::string("it sent ") + why;
  offer(peer, rail);
  if (!rail.link) {
    const bool isOffer = card.version != IbCard::kNone;
    if (isOffer && !leaving_ && !told_) {
      IbCard none;
      none.version = IbCard::kNone;
      pushCard(peer, rail, none);
    }
    return;
  }
  if (rail.link->hasFailed()) return;
  if (rail.link->isConnected()) throw std::string("it sent a card twice");
  if (const auto done = rail.link->connect(card); !done) {
    rail.link->close();
    rail.failedAt = -1;
    if (rail.index != 0) return;
    watchUrgently(peer.first().link.socket().get(), false);
    // After a failure that is why.
    if (rail.attempts == 0) peer.whyNoRdma = "RDMA to it cannot be had: " + done.error().errStr;
    return;
  }
  sayOf(peer, rail, FrameType::Connected);
}

/// The peer is ready: one write shows whether packets pass.
void TcpTransport::probe(Peer& peer, Rail& rail) {
  if (!rail.link || rail.link->hasFailed()) return;
  if (!rail.link->isConnected() || rail.link->hasOutput()) {
    throw std::string("it is ready for RDMA that was not offered");
  }
  rail.link->push({FrameHeader{FrameType::Opened, 0, {}}});
  rail.link->write([](void*, size_t) {});
  if (peer.whyNoRdma.empty()) peer.whyNoRdma = "RDMA is not agreed yet";
}

void TcpTransport::switchCame(Peer&, Rail& rail) {
  if (!rail.link) return;
  if (!rail.isProven && !rail.link->hasFailed()) {
    throw std::string("it uses RDMA that was not agreed");
  }
  rail.hasSwitched = true;
  if (!rail.link->hasFailed()) rail.reader.state = State::Up;
}

bool TcpTransport::pollRdma() {
  if (devices_.empty()) return false;
  bool any = false;
  for (const auto& device : devices_) {
    // A sleeper is told of what comes from now on; what came before is here.
    device->arm();
    any |= device->poll();
  }
  peers_.forEach([this](int, Peer& peer) {
    for (size_t r = 0; r < peer.rails.size(); ++r) {  // what is found may add rails
      if (peer.rails[r]->link) pollRail(peer, *peer.rails[r]);
    }
    if (peer.sendsOverRdma() && peer.hasOutput()) flush(peer);
  });
  return any;
}

void TcpTransport::pollRail(Peer& peer, Rail& rail) {
  IbLink& link = *rail.link;
  if (rail.reader.isThere() && link.hasInput()) {
    moved_ = true;
    std::string why;
    try {
      why = link.read(rail.reader);
    } catch (const std::bad_alloc&) {
      why = "there is no memory for what it sends";
    }
    if (!why.empty()) return lose(peer, why);
  }
  if (link.isForged()) return lose(peer, link.why());
  link.collect([this](void* owner, size_t bytes) { written(owner, bytes); });
  if (link.hasFailed()) return failed(peer, rail);
  if (leaving_ || told_) return;
  if (!rail.isProven && link.isProven()) {
    rail.isProven = true;
    sayOf(peer, rail, FrameType::Proven);
  }
  // What waits for the answer to a Get comes before what goes over this.
  if (!rail.sends && rail.isProven && rail.isProvenThere && peer.asked.empty()) {
    sayOf(peer, rail, FrameType::Switch);
    rail.sends = true;
    if (rail.index == 0) peer.whyNoRdma.clear();
    log(LogComponent::Transport, LogLevel::Debug, "rank %d sends to %s over RDMA (%s)", rank_,
        describe(peer.rank).c_str(), link.device().name().c_str());
    offerMore(peer);
  }
}

/// Each rail takes of the large messages in turn, until none has room.
void TcpTransport::writeOverRdma(Peer& peer, const std::function<void(void*, size_t)>& written) {
  for (const auto& rail : peer.rails) {
    if (rail->sends) rail->link->write(written);
  }
  bool any = true;
  while (any && !peer.bulk.empty()) {
    any = false;
    for (const auto& rail : peer.rails) {
      if (rail->sends) any |= rail->link->writeOne(peer.bulk, written);
    }
  }
  // A failed device is noticed even if this rank is no longer in a call.
  if (peer.sendsOverRdma() && peer.hasOutput()) lookAgain(kLook);
}

void TcpTransport::closeRdma(Peer& peer, const std::string& why) {
  for (const auto& rail : peer.rails) {
    if (!rail->link) continue;
    rail->link->close();
    rail->failedAt = -1;
  }
  if (!peer.sendsOverRdma()) peer.whyNoRdma = why;
}

std::string TcpTransport::pathTo(int rank) {
  const Lock lock(*this);
  const Peer* const peer = peers_.find(rank);
  if (peer == nullptr) return "TCP";
  if (!peer->sendsOverRdma()) return peer->whyNoRdma.empty() ? "TCP" : "TCP: " + peer->whyNoRdma;
  std::set<std::string> known;  // two rails may be at one device
  std::string names;
  for (const auto& rail : peer->rails) {
    if (!rail->sends || !known.insert(rail->link->device().name()).second) continue;
    names += (names.empty() ? "" : ", ") + rail->link->device().name();
  }
  const uint64_t placed = peer->messagesPlaced;
  return "RDMA (" + names + ")" +
         (placed > 0 ? ", " + std::to_string(placed) + " messages sent without a copy" : "");
}

}  // namespace ctran
