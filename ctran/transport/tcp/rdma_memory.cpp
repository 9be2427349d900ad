// Large messages that a device writes from the sender's memory to the receiver's.
#include <algorithm>
#include <bit>

#include "ctran/base/checked.h"
#include "ctran/transport/tcp/peer.h"

namespace ctran {
namespace {

static_assert(sizeof(IbTarget) == kTargetBytes);

/// Larger messages are sent as data: a link has work requests for so much at a time, and for the
/// notice of it.
constexpr size_t kMostPlaced = size_t{32} << 30;
/// Smaller parts are not worth a notice of their own.
constexpr size_t kLeastPart = 256 << 10;

}  // namespace

std::shared_ptr<void> TcpTransport::useDirectly(std::span<std::byte> memory,
                                                std::function<bool()> isCurrent) {
  const Lock lock(*this);
  return regions_.named()->add(memory, std::move(isCurrent));
}

std::shared_ptr<NamedRegions> TcpTransport::directMemory() {
  const Lock lock(*this);
  return regions_.named();
}

void TcpTransport::shareDirectMemory(std::shared_ptr<NamedRegions> memory) {
  const Lock lock(*this);
  regions_.shareNamed(std::move(memory));
}

/// Returns where a peer that sends over RDMA may write the message; none if its memory is not
/// registered.
std::optional<IbTarget> TcpTransport::grant(Peer& peer, const Inbound& message) {
  std::shared_ptr<IbRegion> region;
  IbTarget target;
  target.address = reinterpret_cast<uint64_t>(message.data);
  for (const auto& rail : peer.rails) {
    if (!rail->link || rail->link->hasFailed() || !rail->reader.isThere()) continue;
    const IbDevice& device = rail->link->device();
    if (!region) region = regions_.find(message.data, message.bytes);
    if (!region) return std::nullopt;
    if (!region->registerAt(device)) continue;
    target.rails |= 1u << rail->index;
    target.keys[rail->index] = region->rkey(device);
  }
  if (target.rails == 0) return std::nullopt;
  peer.granted[message.name] = std::move(region);
  return target;
}

/// How the message gets to its target; null if it is sent as data.
std::shared_ptr<const IbPlacement> TcpTransport::placementOf(
    Peer& peer, const Outbound& message, const std::optional<IbTarget>& target) {
  if (!target || !peer.sendsOverRdma() || message.bytes > kMostPlaced) return nullptr;
  IbPlacement placement{regions_.find(message.data, message.bytes), *target};
  if (!placement.from) return nullptr;
  for (const auto& rail : peer.rails) {
    const bool isGranted = (target->rails >> rail->index & 1) != 0;
    if (isGranted && rail->sends && !rail->link->hasFailed() &&
        placement.from->registerAt(rail->link->device())) {
      placement.rails |= 1u << rail->index;
    }
  }
  if (placement.rails == 0) return nullptr;
  return std::make_shared<IbPlacement>(std::move(placement));
}

/// Pushes a part for each rail; a rail that has room takes the next one.
void TcpTransport::pushPlaced(Peer& peer, Outbound& message,
                              std::shared_ptr<const IbPlacement> placement) {
  const auto rails = static_cast<size_t>(std::popcount(placement->rails));
  const size_t share = ((message.bytes + rails - 1) / rails + kPage - 1) / kPage * kPage;
  const size_t part = std::max(share, kLeastPart);
  for (size_t offset = 0; offset < message.bytes; offset += part) {
    Link::Outgoing frame{headerOf(FrameType::Placed, kPlacedPayload, message, offset),
                         message.data + offset, ownerOf(message)};
    frame.placement = placement;
    frame.placedBytes = std::min(part, message.bytes - offset);
    peer.bulk.push_back(std::move(frame));
  }
  ++peer.messagesPlaced;
}

/// A part of a message is where it belongs.
void TcpTransport::placed(Peer& peer, const FrameHeader& frame, uint64_t bytes) {
  Inbound* const message = peer.find(frame.name);
  if (message == nullptr) {
    if (told_ || peer.forsaken.count(frame.name) > 0) return;
    throw std::string("it placed a message that nobody asked for");
  }
  if (peer.granted.count(frame.name) == 0 || bytes == 0 ||
      !isInside(frame.offset, bytes, message->bytes)) {
    throw std::string("it placed a message for which it was given no place");
  }
  message->other = {message->bytes, operationOf(frame)};
  received(*message, bytes);
}

}  // namespace ctran
