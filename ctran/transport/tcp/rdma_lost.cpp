// RDMA that has failed. The receiver of each direction knows what it has read of the ring, and the
// sender still has the rest there (IbLink): both ends stop, say how far they have read (Lost), and
// what was not read goes over the TCP connection, in order. So nothing is lost, and nothing comes
// twice. Then rail 0, which carries everything, is made again over another device.
//
// A rank that is in no call has to answer, too: others may wait for what it has sent. So a thread
// watches what tells of failures meanwhile (urgentFd).
#include <algorithm>
#include <iterator>

#include "ctran/base/clock.h"
#include "ctran/base/log.h"
#include "ctran/transport/tcp/peer.h"

namespace ctran {
namespace {

/// How long the connection has to tell why RDMA to the same peer has failed, where this rank cannot
/// go on without: that it has died, or has left, or has another failure to tell.
constexpr std::chrono::milliseconds kGrace{500};

/// A message that is not placed any more, as the data that it would have been.
void pushAsData(Link::Frames& to, const Link::Outgoing& placed) {
  for (size_t at = 0; at < placed.placedBytes; at += kFrameBytes) {
    FrameHeader header = placed.header;
    header.type = FrameType::Data;
    header.bytes = static_cast<uint32_t>(std::min<size_t>(kFrameBytes, placed.placedBytes - at));
    header.offset += at;
    to.push_back({header, placed.data + at, placed.owner});
  }
}

}  // namespace

/// A link of this rank has failed: the pair goes on without. If it must not, what was under way is
/// lost; the connection may know better why.
void TcpTransport::failed(Peer& peer, Rail& rail) {
  if (rail.failedAt < 0 || peer.hasLeft) return;
  IbLink& link = *rail.link;
  const int64_t now = nowNanos();
  const int64_t grace = std::chrono::nanoseconds(kGrace).count();
  if (rail.failedAt == 0) {
    rail.failedAt = now;
    rail.wasUsed = rail.sends || rail.reader.isThere();
    link.stop();
    if (!told_ && (link.device().settings().failsOver || !rail.wasUsed)) {
      rail.reader.state = State::Gone;
      rail.saysLost = true;
      sayOf(peer, rail, FrameType::Lost, link.bytesRead());
    }
  }
  if (rail.saysLost && peer.first().isOpen() && !peer.first().hasLeft) return;  // it will answer
  if (!rail.wasUsed) return;
  if (now - rail.failedAt < grace) return lookAgain(kGrace / 4);
  lose(peer, "RDMA over " + link.device().name() + " has failed: " + link.why());
}

/// The peer has read so much, and reads no more.
void TcpTransport::lostCame(Peer& peer, Rail& rail, uint64_t bytes) {
  if (!rail.link || rail.failedAt < 0) return;
  rail.link->broken("it has failed at the other end");
  if (rail.failedAt == 0) failed(peer, rail);
  if (!rail.saysLost) return;
  // A goodbye that was to be read after that of the connection comes over the connection.
  if (rail.hasSwitched && !rail.reader.hasLeft) peer.first().hasLeft = false;
  fallBack(peer, rail, bytes);
}

void TcpTransport::fallBack(Peer& peer, Rail& rail, uint64_t bytes) {
  const std::string name = rail.link->device().name(), why = rail.link->why();
  if (rail.sends) {
    Link::Frames frames, bulk;
    const std::string wrong = rail.link->handBack(
        bytes, frames, [this](void* owner, size_t size) { written(owner, size); });
    if (!wrong.empty()) throw wrong;
    for (Link::Outgoing& frame : frames) {
      if (frame.placement && frame.header.type == FrameType::Placed) {
        pushAsData(bulk, frame);
        continue;
      }
      // Keys are of the device that has failed.
      if (frame.header.type == FrameType::Ready) {
        frame.header.bytes = 0;
        frame.owned.clear();
      }
      pushInOrder(peer, std::move(frame));
    }
    for (Link::Outgoing& frame : peer.bulk) {
      if (frame.placement) {
        pushAsData(bulk, frame);
      } else {
        bulk.push_back(std::move(frame));
      }
    }
    peer.bulk = std::move(bulk);
  }
  for (auto& [message, ready] : peer.ready) {
    if (ready.target) ready.target->rails &= ~(1u << rail.index);
  }
  log(LogComponent::Transport, LogLevel::Warn,
      "rank %d goes on to %s without RDMA over %s, which has failed: %s", rank_,
      describe(peer.rank).c_str(), name.c_str(), why.c_str());

  const size_t devices = std::max<size_t>(devices_.size(), rail.link->remote().ways);
  const uint32_t attempts = rail.attempts + 1;
  const uint32_t index = rail.index;
  peer.rails[index] = std::make_unique<Rail>(peer, index);
  Rail& next = *peer.rails[index];
  next.attempts = attempts;
  next.hasOffered = index != 0 || attempts >= devices;
  if (index == 0) {
    watchUrgently(peer.first().link.socket().get(), false);
    peer.whyNoRdma = "RDMA over " + name + " has failed: " + why;
    offer(peer, next);
  }
  flush(peer);
  checkLeft(peer);
}

}  // namespace ctran
