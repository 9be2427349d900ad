// Registered memory, which peers write and read by their devices: this rank takes no part. A pair
// that does not use RDMA, or memory at the caller's end that is not registered, reaches nothing:
// messages do. What a link that has failed leaves goes over the connection, as Put and Get frames.
#include <cstring>

#include "ctran/base/checked.h"
#include "ctran/transport/tcp/peer.h"

namespace ctran {
namespace {

/// What a peer is told of registered memory.
struct Key {
  static constexpr size_t kDevices = 8;
  uint64_t address = 0;
  uint64_t number = 0;  ///< of the registration
  uint32_t keys[kDevices] = {};
  uint32_t devices = 0;  ///< a bit for each device at which the memory is registered
};
static_assert(sizeof(Key) == sizeof(RemoteMemory::key));

Key keyIn(const RemoteMemory& remote) {
  Key key;
  std::memcpy(&key, remote.key.data(), sizeof key);
  return key;
}

void checkRange(const RemoteMemory& remote, size_t offset, size_t bytes, int peer) {
  if (isInside(offset, bytes, remote.bytes)) return;
  throw Error(ErrorKind::InvalidArgument,
              std::to_string(bytes) + " bytes from byte " + std::to_string(offset) +
                  " on are not inside the " + std::to_string(remote.bytes) + " that rank " +
                  std::to_string(peer) + " has registered",
              {peer});
}

/// Answers to a peer that wait to be sent, beyond those to one question.
constexpr size_t kMostUnsent = 64 << 20;

}  // namespace

/// Memory of this rank that peers use.
class TcpTransport::Exposed final : public MemoryRegistration {
 public:
  Exposed(TcpTransport& transport, std::span<std::byte> memory, const RemoteMemory& remote)
      : MemoryRegistration(memory, remote), transport_(transport) {}
  ~Exposed() override { transport_.withdraw(keyIn(remote).number); }

 private:
  TcpTransport& transport_;
};

/// A get. Nothing is written to its memory when it is gone.
class TcpTransport::Fetch final : public Transmission {
 public:
  Fetch(TcpTransport& transport, uint32_t number, int peer, std::span<std::byte> destination)
      : Transmission(transport, {}, peer, destination.size(), {}),
        number(number),
        data(destination.data()),
        transport_(transport) {}
  ~Fetch() override { transport_.release(*this); }

  const uint32_t number;
  std::byte* const data;

 private:
  TcpTransport& transport_;
};

std::unique_ptr<MemoryRegistration> TcpTransport::registerMemory(std::span<std::byte> memory,
                                                                 int device) {
  if (device != kHostMemory) return Transport::registerMemory(memory, device);
  const Lock lock(*this);
  openDevices();
  Key key;
  key.address = reinterpret_cast<uint64_t>(memory.data());
  key.number = ++lastExposed_;
  auto region = std::make_shared<IbRegion>(
      memory, [] { return true; }, IbRegion::kWritten | IbRegion::kRead);
  for (size_t i = 0; i < std::min(devices_.size(), Key::kDevices) && !memory.empty(); ++i) {
    if (!region->registerAt(*devices_[i])) continue;
    key.devices |= 1u << i;
    key.keys[i] = region->rkey(*devices_[i]);
  }
  exposed_[key.number] = std::move(region);
  RemoteMemory remote{memory.size()};
  std::memcpy(remote.key.data(), &key, sizeof key);
  return std::make_unique<Exposed>(*this, memory, remote);
}

void TcpTransport::withdraw(uint64_t number) {
  const Lock lock(*this);
  const auto found = exposed_.find(number);
  if (found == exposed_.end()) return;
  const std::span<std::byte> memory = found->second->memory();
  exposed_.erase(found);  // its keys go
  peers_.forEach([&](int, Peer& peer) {
    peer.first().link.divert(memory.data(), memory.data() + memory.size());
  });
}

/// Registered memory with all of that: what is exposed to peers, too.
std::shared_ptr<IbRegion> TcpTransport::regionOf(std::span<const std::byte> local) {
  for (const auto& [number, region] : exposed_) {
    if (region->contains(local.data(), local.size())) return region;
  }
  return regions_.find(local.data(), local.size());
}

/// How a device gets from here to there; null if it does not.
std::shared_ptr<const IbPlacement> TcpTransport::placementAt(Peer& peer, const RemoteMemory& remote,
                                                             std::span<const std::byte> local) {
  const Rail& rail = peer.main();
  if (!rail.sends || rail.link->hasFailed() || local.empty()) return nullptr;
  const Key key = keyIn(remote);
  const uint32_t there = rail.link->remote().device;
  if (there >= Key::kDevices || (key.devices >> there & 1) == 0) return nullptr;
  IbPlacement placement{regionOf(local), {key.address}, 1};
  if (!placement.from || !placement.from->registerAt(rail.link->device())) return nullptr;
  placement.to.keys[0] = key.keys[there];
  return std::make_shared<IbPlacement>(std::move(placement));
}

bool TcpTransport::reaches(int rank, const RemoteMemory& remote, std::span<const std::byte> local) {
  const Lock lock(*this);
  return placementAt(peerOf(rank), remote, local) != nullptr;
}

std::unique_ptr<Transfer> TcpTransport::put(int rank, const RemoteMemory& remote, size_t offset,
                                            std::span<const std::byte> source) {
  checkRange(remote, offset, source.size(), rank);
  std::unique_ptr<Outbound> message;
  const Waking lock(*this);
  Peer& peer = peerOf(rank);
  auto placement = placementAt(peer, remote, source);
  if (!placement) return nullptr;
  message = std::make_unique<Outbound>(*this, MessageName{}, rank, source.data(), source.size(),
                                       OperationRecord{});
  bytesSent_.fetch_add(source.size(), std::memory_order_relaxed);
  countSent(peer, source.size());
  Link::Outgoing frame{
      FrameHeader{FrameType::Put, 0, {kCollectiveQueue, 0, keyIn(remote).number}, offset},
      source.data(), ownerOf(*message)};
  frame.placement = std::move(placement);
  frame.placedBytes = source.size();
  peer.push(std::move(frame));
  flush(peer);
  return message;
}

std::unique_ptr<Transfer> TcpTransport::get(int rank, const RemoteMemory& remote, size_t offset,
                                            std::span<std::byte> destination) {
  checkRange(remote, offset, destination.size(), rank);
  std::unique_ptr<Fetch> fetch;
  const Waking lock(*this);
  Peer& peer = peerOf(rank);
  auto placement = placementAt(peer, remote, destination);
  if (!placement) return nullptr;
  fetch = std::make_unique<Fetch>(*this, ++lastFetch_, rank, destination);
  FrameHeader header{
      FrameType::Get, 0, {kCollectiveQueue, fetch->number, keyIn(remote).number}, offset};
  header.count = destination.size();
  Link::Outgoing frame{header, destination.data(), ownerOf(*fetch)};
  frame.placement = std::move(placement);
  frame.placedBytes = destination.size();
  peer.push(std::move(frame));
  flush(peer);
  return fetch;
}

void TcpTransport::release(Fetch& fetch) {
  const Lock lock(*this);
  if (fetch.progress.load(std::memory_order_relaxed) != 0) return;
  Peer& peer = peerOf(fetch.peer);
  void* const owner = ownerOf(fetch);
  peer.asked.erase(fetch.number);
  std::erase_if(peer.held, [owner](const Link::Outgoing& each) { return each.owner == owner; });
  peer.first().link.divert(fetch.data, fetch.data + fetch.bytes);
  // A device may be writing to it.
  for (const auto& rail : peer.rails) {
    if (!rail->link) continue;
    rail->link->forget(owner);
    rail->link->close();
  }
}

/// Over the connection. What comes after a Get waits for its answer.
void TcpTransport::pushInOrder(Peer& peer, Link::Outgoing frame) {
  if (!peer.asked.empty()) {
    peer.held.push_back(std::move(frame));
    return;
  }
  Link& link = peer.first().link;
  if (!frame.placement) return link.push(std::move(frame));
  if (frame.header.type == FrameType::Get) {
    peer.asked[frame.header.name.buffer] =
        static_cast<Fetch*>(static_cast<Transmission*>(frame.owner));
    return link.push({frame.header});
  }
  for (size_t at = 0; at < frame.placedBytes; at += kFrameBytes) {
    FrameHeader header = frame.header;
    header.bytes = static_cast<uint32_t>(std::min<size_t>(kFrameBytes, frame.placedBytes - at));
    header.offset += at;
    link.push({header, frame.data + at, frame.owner});
  }
}

/// The memory that a peer means; nothing if this rank does not care any more.
std::span<std::byte> TcpTransport::exposedTo(const FrameHeader& frame, uint64_t bytes) {
  const auto found = exposed_.find(frame.name.sequence);
  if (found == exposed_.end()) {
    if (told_ || leaving_ || frame.name.sequence <= lastExposed_) return {};
    throw std::string("it means memory that was never registered");
  }
  const std::span<std::byte> memory = found->second->memory();
  if (!isInside(frame.offset, bytes, memory.size())) {
    throw std::string("it means bytes beyond the end of registered memory");
  }
  return memory.subspan(frame.offset, bytes);
}

void TcpTransport::answerGet(Peer& peer, const FrameHeader& frame) {
  const std::span<std::byte> memory = exposedTo(frame, frame.count);
  Link& link = peer.first().link;
  if (link.waiting() > kMostUnsent) throw std::string("it asks for more, and takes no answers");
  for (size_t at = 0; at < memory.size(); at += kFrameBytes) {
    const std::span<std::byte> part = memory.subspan(at, std::min(kFrameBytes, memory.size() - at));
    Link::Outgoing answer{FrameHeader{FrameType::Got,
                                      static_cast<uint32_t>(part.size()),
                                      {kCollectiveQueue, frame.name.buffer, 0},
                                      at}};
    answer.owned.assign(part.begin(), part.end());
    link.push(std::move(answer));
  }
  flush(peer);
}

std::byte* TcpTransport::beginGot(Peer& peer, const FrameHeader& frame) {
  const auto found = peer.asked.find(frame.name.buffer);
  if (found == peer.asked.end()) {
    if (told_ || frame.name.buffer <= lastFetch_) return nullptr;
    throw std::string("it answered what was not asked");
  }
  if (!isInside(frame.offset, frame.bytes, found->second->bytes)) {
    throw std::string("it answered more than was asked");
  }
  return found->second->data + frame.offset;
}

void TcpTransport::endGot(Peer& peer, const FrameHeader& frame) {
  const auto found = peer.asked.find(frame.name.buffer);
  if (found == peer.asked.end()) return;
  Fetch& fetch = *found->second;
  fetch.moved += frame.bytes;
  if (fetch.moved < fetch.bytes) return;
  peer.asked.erase(found);
  finish(fetch);
  Link::Frames frames = std::move(peer.held);
  peer.held.clear();
  for (Link::Outgoing& each : frames) pushInOrder(peer, std::move(each));
  flush(peer);
}

}  // namespace ctran
