#include "ctran/collective/exchange/copy_engine.h"

#include <algorithm>
#include <utility>

#include "ctran/base/config.h"
#include "ctran/collective/exchange/copy_signals.cuh"
#include "ctran/gpu/driver.h"

namespace ctran {
namespace {

using gpu::addressOf;
using gpu::check;
using gpu::copyAsync;
using gpu::DevicePtr;

const ConfigInt kCopyBytes{
    "CTRAN_GPU_COPY_BYTES", 16 << 20,
    "What copy engines send at a time (ctran::algorithm=copy_engine). A communicator that uses "
    "them takes twice that on each GPU for every other rank. The same on all ranks.",
    4096, 1 << 30};

constexpr size_t kDepth = 2;
/// Chunks that are not larger than a slot, but as many as keep both copies going.
constexpr size_t kWantedChunks = 4;
constexpr size_t kLeastCopy = 1 << 20;
constexpr size_t kWords = 4;
/// Distance of flags, so that no two share a sector.
constexpr size_t kWordBytes = 32;
constexpr size_t kHead = kWords * device::kMaxRanks * kDepth * kWordBytes;

}  // namespace

bool CopyEngines::serves(CollectiveKind kind) {
  return kind == CollectiveKind::AllGather || kind == CollectiveKind::AllToAll ||
         kind == CollectiveKind::Broadcast;
}

CopyEngines::CopyEngines(const device::Team& team, int device)
    : team_(team),
      device_(device),
      slotBytes_(static_cast<size_t>(kCopyBytes.get()) / 256 * 256),
      kernels_(MovingKernels::of(device, static_cast<int>(team.size))),
      sends_(team.rank, team.size, device),
      receives_(team.rank, team.size, device),
      others_(team.size) {}

UniqueFd CopyEngines::allocate() {
  own_ = gpu::DeviceMemory::allocate(device_, kHead + (team_.size - 1) * kDepth * slotBytes_);
  const gpu::OwnStream stream(gpu::Runtime::of(gpu::Platform::Cuda), device_, false);
  check(gpu::Driver::get().memsetD32Async(own_.address(), 0, kHead / 4, stream.get()),
        "cuMemsetD32Async");
  check(gpu::Driver::get().streamSynchronize(stream.get()), "cuStreamSynchronize");
  return UniqueFd(own_.exportHandle());
}

void CopyEngines::connect(const HostGroup& group) {
  for (uint32_t r = 0; r < team_.size; ++r) {
    if (r == team_.rank) continue;
    others_[r] = gpu::DeviceMemory::import(group.brought[r].get(), own_.size(), device_);
  }
}

DevicePtr CopyEngines::word(uint32_t owner, Word word, uint32_t peer, size_t slot) const {
  const DevicePtr base = owner == team_.rank ? own_.address() : others_[owner].address();
  return base + ((word * device::kMaxRanks + peer) * kDepth + slot) * kWordBytes;
}

DevicePtr CopyEngines::slotOf(uint32_t owner, uint32_t from, size_t slot) const {
  const DevicePtr base = owner == team_.rank ? own_.address() : others_[owner].address();
  const uint32_t place = from < owner ? from : from - 1;
  return base + kHead + (place * kDepth + slot) * slotBytes_;
}

void CopyEngines::signal(gpu::Function kernel, DevicePtr uses, DevicePtr flag, uint32_t peer,
                         uint32_t ahead, gpu::Stream stream) const {
  device::CopySignalArguments a{};
  a.team = team_;
  a.uses = reinterpret_cast<uint32_t*>(uses);
  a.flag = reinterpret_cast<uint32_t*>(flag);
  a.peer = peer;
  a.ahead = ahead;
  void* parameters[] = {&a};
  check(gpu::Driver::get().launchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr),
        "launching a kernel");
}

/// The slot is free when the receiver has used it as often as this rank.
void CopyEngines::send(const std::byte* from, size_t bytes, uint32_t to, size_t slot) {
  const gpu::Stream stream = sends_.of(to);
  const DevicePtr sent = word(team_.rank, Sent, to, slot);
  signal(kernels_.waitForCopy, sent, word(team_.rank, Credit, to, slot), to, 0, stream);
  copyAsync(slotOf(to, team_.rank, slot), addressOf(from), bytes, stream);
  signal(kernels_.signalCopy, sent, word(to, Ready, team_.rank, slot), to, 0, stream);
}

void CopyEngines::receive(std::byte* to, size_t bytes, uint32_t from, size_t slot) {
  const gpu::Stream stream = receives_.of(from);
  const DevicePtr received = word(team_.rank, Received, from, slot);
  signal(kernels_.waitForCopy, received, word(team_.rank, Ready, from, slot), from, 1, stream);
  copyAsync(addressOf(to), slotOf(team_.rank, from, slot), bytes, stream);
  signal(kernels_.signalCopy, received, word(from, Credit, team_.rank, slot), from, 0, stream);
}

size_t CopyEngines::chunkOf(size_t bytes) const {
  const size_t even = (bytes / kWantedChunks + 255) / 256 * 256;
  return std::min(slotBytes_, std::max(even, kLeastCopy));
}

void CopyEngines::launch(const Collective& c, gpu::Stream stream) {
  if (c.blockBytes() == 0) return;
  sends_.fork(stream);
  receives_.fork(stream);
  if (c.kind == CollectiveKind::Broadcast) {
    broadcast(c);
  } else {
    exchange(c, stream);
  }
  sends_.join(stream);
  receives_.join(stream);
}

void CopyEngines::exchange(const Collective& c, gpu::Stream stream) {
  const size_t bytes = c.blockBytes();
  const auto blockFor = [&](uint32_t r) -> const std::byte* {
    return c.kind == CollectiveKind::AllGather ? c.input : c.inputBlock(static_cast<int>(r)).data;
  };
  const auto placeOf = [&](uint32_t r) { return c.outputBlock(static_cast<int>(r)).data; };
  copyAsync(addressOf(placeOf(team_.rank)), addressOf(blockFor(team_.rank)), bytes, stream);
  const size_t chunk = chunkOf(bytes);
  for (size_t k = 0; k * chunk < bytes; ++k) {
    const size_t at = k * chunk, length = std::min(chunk, bytes - at);
    for (uint32_t step = 1; step < team_.size; ++step) {
      const uint32_t to = (team_.rank + step) % team_.size;
      send(blockFor(to) + at, length, to, k % kDepth);
      // In place, a chunk has to have left before the other one comes.
      if (blockFor(to) == placeOf(to)) receives_.follow(receives_.of(to), sends_.of(to));
    }
    for (uint32_t step = 1; step < team_.size; ++step) {
      const uint32_t from = (team_.rank + team_.size - step) % team_.size;
      receive(placeOf(from) + at, length, from, k % kDepth);
    }
  }
}

/// The root sends each other rank another part, and that sends it on to the rest, chunk by chunk:
/// the root's link carries the data once.
void CopyEngines::broadcast(const Collective& c) {
  const size_t bytes = c.blockBytes();
  const uint32_t root = static_cast<uint32_t>(c.root), others = team_.size - 1;
  const size_t share = ((bytes + others - 1) / others + 255) / 256 * 256;
  const size_t chunk = chunkOf(share);
  /// Chunk k of the part that rank r sends on.
  const auto piece = [&](uint32_t r, size_t k) -> std::pair<std::byte*, size_t> {
    const size_t begin = (r < root ? r : r - 1) * share + k * chunk;
    const size_t most = std::min(chunk, share - k * chunk);
    return {c.output + begin, begin < bytes ? std::min(most, bytes - begin) : 0};
  };
  for (size_t k = 0; k * chunk < share; ++k) {
    if (team_.rank == root) {
      for (uint32_t step = 1; step < team_.size; ++step) {
        const uint32_t r = (root + step) % team_.size;
        const auto [data, length] = piece(r, k);
        if (length != 0) send(data, length, r, k % kDepth);
      }
      continue;
    }
    const auto [own, length] = piece(team_.rank, k);
    if (length != 0) receive(own, length, root, k % kDepth);
    for (uint32_t step = 1; step < team_.size; ++step) {
      const uint32_t r = (team_.rank + step) % team_.size;
      if (r == root || length == 0) continue;
      sends_.follow(sends_.of(r), receives_.of(root));
      send(own, length, r, k % kDepth);
    }
    for (uint32_t step = 1; step < team_.size; ++step) {
      const uint32_t r = (team_.rank + team_.size - step) % team_.size;
      if (r == root) continue;
      const auto [data, theirs] = piece(r, k);
      if (theirs != 0) receive(data, theirs, r, k % kDepth);
    }
  }
}

}  // namespace ctran
