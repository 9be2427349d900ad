// What the frames of a peer mean.
#include "ctran/base/checked.h"
#include "ctran/transport/tcp/peer.h"

namespace ctran {

OperationRecord operationOf(const FrameHeader& frame) {
  OperationRecord operation;
  operation.sequence = frame.name.queue == kCollectiveQueue ? frame.name.sequence : 0;
  operation.signature = frame.signature;
  operation.what = frame.what;
  operation.count = frame.count;
  return operation;
}

std::byte* TcpTransport::Connection::begin(const FrameHeader& frame) {
  TcpTransport& transport = peer.transport;
  inbound = nullptr;
  arriving = nullptr;
  if (state == State::Accepted) {
    state = State::Up;
    // Not before: a card for a caller that has hung up would make this rank call back.
    if (isFirst()) transport.offer(peer, peer.main());
    transport.callMore(peer);
  }
  if (!isMain() && frame.type != FrameType::Opened && frame.type != FrameType::Data &&
      frame.type != FrameType::Goodbye && !(isRdma() && frame.type == FrameType::Placed)) {
    throw std::string("it sent other frames than data on another connection than the first");
  }
  transport.heard(peer, frame);
  switch (frame.type) {
    case FrameType::Eager:
      return beginEager(frame);
    case FrameType::Data:
      return beginData(frame);
    case FrameType::Announce:
      beginAnnounce(frame);
      return nullptr;
    case FrameType::Ready:
      return frame.bytes == 0 ? nullptr : reinterpret_cast<std::byte*>(&target);
    case FrameType::Credit: {
      Peer::Window& window = peer.windows[frame.name.queue];
      if (frame.offset > window.used) throw std::string("it gave back more than it was sent");
      window.used -= frame.offset;
      transport.admitWaiting(peer, frame.name.queue);
      return nullptr;
    }
    case FrameType::Failure:
      failure.resize(frame.bytes);
      return failure.data();
    case FrameType::Goodbye:
      hasLeft = true;
      transport.checkLeft(peer);
      return nullptr;
    case FrameType::Opened:
      return nullptr;
    case FrameType::Card:
    case FrameType::Connected:
    case FrameType::Proven:
    case FrameType::Switch:
    case FrameType::Lost:
      if (isRdma()) throw std::string("it spoke of RDMA over RDMA");
      return aboutRail(frame);
    case FrameType::Placed:
      return reinterpret_cast<std::byte*>(&placedBytes);
    case FrameType::Put:
      return transport.exposedTo(frame, frame.bytes).data();
    case FrameType::Get:
      transport.answerGet(peer, frame);
      return nullptr;
    case FrameType::Got:
      return transport.beginGot(peer, frame);
  }
  return nullptr;
}

std::byte* TcpTransport::Connection::aboutRail(const FrameHeader& frame) {
  TcpTransport& transport = peer.transport;
  Rail& rail = transport.railOf(peer, frame);
  switch (frame.type) {
    case FrameType::Card:
      rail.card.resize(frame.bytes);
      return rail.card.data();
    case FrameType::Connected:
      transport.probe(peer, rail);
      return nullptr;
    case FrameType::Proven:
      rail.isProvenThere = true;
      return nullptr;
    case FrameType::Switch:
      transport.switchCame(peer, rail);
      return nullptr;
    default:
      transport.lostCame(peer, rail, frame.offset);
      return nullptr;
  }
}

void TcpTransport::Connection::beginAnnounce(const FrameHeader& frame) {
  const OtherEnd other{frame.offset, operationOf(frame)};
  Inbound* const message = peer.find(frame.name);
  if (message == nullptr) {
    if (peer.announced.size() >= kMaxPromises) throw std::string("it announced too many messages");
    peer.announced[frame.name] = other;
    peer.transport.offer(frame.name);
  } else if (message->bytes != frame.offset) {
    peer.transport.finishWrong(*message, other);
  } else if (message->bytes > kEagerBytes && !message->isTold) {
    // Its sender has come to it, and need not keep this.
    peer.transport.tell(peer, *message, FrameType::Ready);
  }
}

void TcpTransport::Connection::ready(const FrameHeader& frame,
                                     const std::optional<IbTarget>& where) {
  const OtherEnd other{frame.offset, operationOf(frame)};
  const auto found = peer.unready.find(frame.name);
  if (found == peer.unready.end()) {
    if (peer.ready.size() >= kMaxPromises) throw std::string("it is ready for too many messages");
    peer.ready[frame.name] = {other, where};
    return;
  }
  Outbound& message = *found->second;
  peer.unready.erase(found);
  peer.transport.kept(peer, message, FrameType::Announce);
  if (message.bytes != frame.offset) {
    peer.transport.finishWrong(message, other);
  } else {
    message.other = other;
    peer.transport.pushData(peer, message, where);
  }
}

std::byte* TcpTransport::Connection::beginEager(const FrameHeader& frame) {
  Peer::Window& window = peer.windows[frame.name.queue];
  window.held += eagerCost(frame.bytes);
  if (window.held > kEagerWindow) throw std::string("it sent more than there is room for");
  inbound = peer.find(frame.name);
  if (inbound == nullptr) {
    const auto [entry, isNew] = peer.early.try_emplace(frame.name);
    if (!isNew) throw std::string("it sent a message twice");
    entry->second.operation = operationOf(frame);
    entry->second.data.resize(frame.bytes);
    arriving = &entry->second;
    peer.transport.offer(frame.name);
    return frame.bytes == 0 ? nullptr : arriving->data.data();
  }
  if (inbound->bytes != frame.bytes) {
    peer.transport.finishWrong(*inbound, {frame.bytes, operationOf(frame)});
    inbound = nullptr;
    return nullptr;
  }
  inbound->other = {frame.bytes, operationOf(frame)};
  return inbound->data;
}

std::byte* TcpTransport::Connection::beginData(const FrameHeader& frame) {
  inbound = peer.find(frame.name);
  if (inbound == nullptr) {
    if (peer.transport.told_ || peer.forsaken.count(frame.name) > 0) return nullptr;
    throw std::string("it sent data that nobody asked for");
  }
  if (!isInside(frame.offset, frame.bytes, inbound->bytes)) {
    inbound = nullptr;
    throw std::string("it sent data beyond the end of a buffer");
  }
  inbound->other = {inbound->bytes, operationOf(frame)};
  return inbound->data + frame.offset;
}

void TcpTransport::Connection::end(const FrameHeader& frame) {
  TcpTransport& transport = peer.transport;
  switch (frame.type) {
    case FrameType::Eager:
      if (arriving != nullptr) {
        arriving->complete = true;
        // It may have been bound meanwhile.
        if (Inbound* const message = peer.find(frame.name)) {
          transport.deliver(peer, *message, *arriving);
        }
      } else {
        if (inbound != nullptr) transport.received(*inbound, frame.bytes);
        transport.consume(peer, frame.name.queue, frame.bytes);
      }
      break;
    case FrameType::Data:
      if (inbound != nullptr) transport.received(*inbound, frame.bytes);
      break;
    case FrameType::Ready:
      ready(frame, frame.bytes == 0 ? std::nullopt : std::optional(target));
      break;
    case FrameType::Placed:
      transport.placed(peer, frame, placedBytes);
      break;
    case FrameType::Got:
      transport.endGot(peer, frame);
      break;
    case FrameType::Failure:
      transport.failureCame(
          peer, std::string(reinterpret_cast<const char*>(failure.data()), failure.size()));
      break;
    case FrameType::Card:
      transport.cardCame(peer, transport.railOf(peer, frame));
      break;
    default:
      break;
  }
  inbound = nullptr;
  arriving = nullptr;
}

}  // namespace ctran
