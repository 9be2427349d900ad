// RDMA beside the connection to a peer. It begins as the connection is there: messages go over TCP
// until a write has passed, so nobody waits for it. Each direction changes over for itself.
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
static_assert(sizeof(IbTarget) == kTargetBytes);

/// How long the connection has to tell why RDMA to the same peer has failed: that it has died, or
/// has left, or has another failure to tell.
constexpr std::chrono::milliseconds kGrace{500};

/// Larger messages are sent as data: a link has work requests for so much at a time.
constexpr size_t kMostPlaced = size_t{64} << 30;

}  // namespace

void TcpTransport::openDevices() {
  if (areDevicesOpen_) return;
  areDevicesOpen_ = true;
  devices_ = IbDevice::openAll(IbSettings::fromEnvironment(), size_ - 1, whyNoDevices_);
  if (devices_.empty()) {
    log(LogComponent::Transport, LogLevel::Debug, "rank %d uses no RDMA: %s", rank_,
        whyNoDevices_.c_str());
    return;
  }
  for (size_t i = 0; i < devices_.size(); ++i)
    watch(devices_[i]->fd(), kDevices + i, EPOLLIN, true);
  timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer_) throw systemError("timerfd_create", errno);
  watch(timer_.get(), kDevices + devices_.size(), EPOLLIN, true);
}

/// Sends this rank's card. Pairs of ranks take turns at the devices, alike at both ends.
void TcpTransport::offerRdma(Peer& peer) {
  if (peer.hasOffered || leaving_ || told_) return;
  peer.hasOffered = true;
  openDevices();
  if (devices_.empty()) {
    peer.whyNoRdma = whyNoDevices_;
    return;
  }
  IbDevice& device = *devices_[static_cast<size_t>(rank_ + peer.rank) % devices_.size()];
  auto made = IbLink::create(device);
  if (!made) {
    peer.whyNoRdma = made.error().errStr;
    log(LogComponent::Transport, LogLevel::Warn, "no RDMA from rank %d to %s: %s", rank_,
        describe(peer.rank).c_str(), peer.whyNoRdma.c_str());
    return;
  }
  peer.rdma = *std::move(made);
  peer.whyNoRdma = "RDMA is not agreed yet";
  FrameHeader header{FrameType::Card, sizeof(IbCard), {}};
  Link::Outgoing frame{header};
  const auto* bytes = reinterpret_cast<const std::byte*>(&peer.rdma->card());
  frame.owned.assign(bytes, bytes + sizeof(IbCard));
  peer.first().link.push(std::move(frame));
  flush(peer);
}

void TcpTransport::cardCame(Peer& peer) {
  offerRdma(peer);
  if (!peer.rdma || peer.rdma->hasFailed()) return;
  IbCard card;
  std::memcpy(&card, peer.card.data(), sizeof card);
  if (const auto done = peer.rdma->connect(card); !done) {
    closeRdma(peer, "RDMA to it cannot be had: " + done.error().errStr);
    return;
  }
  say(peer.first(), FrameType::Connected);
}

/// The peer is ready: one write shows whether packets pass.
void TcpTransport::probeRdma(Peer& peer) {
  if (!peer.rdma || peer.rdma->hasFailed()) return;
  if (!peer.rdma->isConnected() || peer.rdma->hasOutput()) {
    throw std::string("it is ready for RDMA that was not offered");
  }
  static Link::Frames nothing;  // stays so
  peer.rdma->push({FrameHeader{FrameType::Opened, 0, {}}});
  peer.rdma->write(nothing, [](void*, size_t) {});
}

void TcpTransport::switchCame(Peer& peer) {
  if (!peer.isRdmaProven) throw std::string("it uses RDMA that was not agreed");
  peer.rdmaReader.state = State::Up;
}

bool TcpTransport::pollRdma() {
  if (devices_.empty()) return false;
  bool any = false;
  for (const auto& device : devices_) {
    // Whoever sleeps is told of what comes from now on; what came before is here.
    device->arm();
    any |= device->poll();
  }
  peers_.forEach([this](int, Peer& peer) {
    if (peer.rdma) pollRdma(peer);
  });
  return any;
}

void TcpTransport::pollRdma(Peer& peer) {
  IbLink& link = *peer.rdma;
  if (peer.rdmaReader.isThere() && link.hasInput()) {
    moved_ = true;
    std::string why;
    try {
      why = link.read(peer.rdmaReader);
    } catch (const std::bad_alloc&) {
      why = "there is no memory for what it sends";
    }
    if (!why.empty()) return lose(peer, why);
  }
  link.collect([this](void* owner, size_t) { finish(*static_cast<Outbound*>(owner)); });
  if (link.hasFailed()) return rdmaFailed(peer);
  if (!peer.isRdmaProven && link.isProven() && !leaving_ && !told_) {
    peer.isRdmaProven = true;
    say(peer.first(), FrameType::Proven);
  }
  if (!peer.sendsOverRdma && peer.isRdmaProven && peer.isRdmaProvenThere && !leaving_ && !told_) {
    say(peer.first(), FrameType::Switch);
    peer.sendsOverRdma = true;
    peer.whyNoRdma.clear();
    log(LogComponent::Transport, LogLevel::Debug, "rank %d sends to %s over RDMA (%s)", rank_,
        describe(peer.rank).c_str(), link.device().name().c_str());
  }
  if (peer.sendsOverRdma && peer.hasOutput()) flush(peer);
}

std::shared_ptr<void> TcpTransport::useDirectly(std::span<std::byte> memory,
                                                std::function<bool()> isCurrent) {
  const Lock lock(*this);
  return regions_.add(memory, std::move(isCurrent));
}

/// Where a peer that sends over RDMA may write the message; nothing if its memory is not
/// registered.
std::optional<IbTarget> TcpTransport::grant(Peer& peer, const Inbound& message) {
  if (!peer.rdma || peer.rdma->hasFailed() || !peer.rdmaReader.isThere()) return std::nullopt;
  const IbDevice& device = peer.rdma->device();
  std::shared_ptr<IbRegion> region = regions_.find(device, message.data, message.bytes);
  if (!region) return std::nullopt;
  const IbTarget target{reinterpret_cast<uint64_t>(message.data), region->rkey(device)};
  peer.granted[message.name] = std::move(region);
  return target;
}

/// How the message gets to its target; null if it is sent as data.
std::shared_ptr<const IbPlacement> TcpTransport::placementOf(
    Peer& peer, const Outbound& message, const std::optional<IbTarget>& target) {
  if (!target || !peer.sendsOverRdma || message.bytes > kMostPlaced) return nullptr;
  std::shared_ptr<IbRegion> region =
      regions_.find(peer.rdma->device(), message.data, message.bytes);
  if (!region) return nullptr;
  return std::make_shared<IbPlacement>(IbPlacement{std::move(region), message.bytes, *target});
}

/// A message is where it belongs.
void TcpTransport::placed(Peer& peer, const FrameHeader& frame) {
  Inbound* const message = peer.find(frame.name);
  if (message == nullptr) {
    if (told_ || peer.forsaken.count(frame.name) > 0) return;
    throw std::string("it placed a message that nobody asked for");
  }
  if (peer.granted.count(frame.name) == 0 || message->moved != 0 ||
      frame.offset != message->bytes) {
    throw std::string("it placed a message for which it was given no place");
  }
  message->other = {message->bytes, operationOf(frame)};
  received(*message, message->bytes);
}

/// Something has happened that devices, or the timer, woke this rank for.
void TcpTransport::rdmaWoke(size_t which) {
  if (which < devices_.size()) return devices_[which]->disarm();
  uint64_t times = 0;
  [[maybe_unused]] const ssize_t n = ::read(timer_.get(), &times, sizeof times);
}

/// Before anything was sent over it a failure is none: the pair goes on with TCP. Afterwards what
/// was under way is lost. The connection may know better why.
void TcpTransport::rdmaFailed(Peer& peer) {
  if (peer.rdmaFailedAt < 0 || peer.hasLeft) return;
  if (!peer.sendsOverRdma && !peer.rdmaReader.isThere()) {
    if (peer.rdmaFailedAt == 0) {
      log(LogComponent::Transport, LogLevel::Warn,
          "rank %d goes on with TCP to %s: RDMA over %s has failed: %s", rank_,
          describe(peer.rank).c_str(), peer.rdma->device().name().c_str(),
          peer.rdma->why().c_str());
      peer.whyNoRdma = "RDMA has failed: " + peer.rdma->why();
      peer.rdma->close();
      peer.rdmaFailedAt = 1;
    }
    return;
  }
  const int64_t now = nowNanos();
  const int64_t grace = std::chrono::nanoseconds(kGrace).count();
  if (peer.rdmaFailedAt <= 1) {
    peer.rdmaFailedAt = now;
    peer.rdma->close();
    itimerspec when{};
    when.it_value.tv_nsec = grace;
    ::timerfd_settime(timer_.get(), 0, &when, nullptr);
  }
  if (now - peer.rdmaFailedAt < grace) return;
  lose(peer, "RDMA over " + peer.rdma->device().name() + " has failed: " + peer.rdma->why());
}

void TcpTransport::closeRdma(Peer& peer, const std::string& why) {
  peer.rdma->close();
  peer.rdmaFailedAt = -1;
  if (peer.sendsOverRdma) return;
  peer.whyNoRdma = why;
}

std::string TcpTransport::pathTo(int rank) {
  const Lock lock(*this);
  const Peer* const peer = peers_.find(rank);
  if (peer == nullptr) return "TCP";
  if (peer->sendsOverRdma) {
    const uint64_t placed = peer->rdma->messagesPlaced();
    return "RDMA (" + peer->rdma->device().name() + ")" +
           (placed > 0 ? ", " + std::to_string(placed) + " messages sent without a copy" : "");
  }
  return peer->whyNoRdma.empty() ? "TCP" : "TCP: " + peer->whyNoRdma;
}

}  // namespace ctran
