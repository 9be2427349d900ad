#include "ctran/collective/gpu/context.h"

#include <algorithm>

#include "ctran/collective/exchange/flows.cuh"

namespace ctran {
namespace {

// From sweeps on four H200, and on two; docs/backends/ctran_gpu.md has them.

constexpr uint32_t kFlowThreads = 512;  ///< of all rows of a block
constexpr uint32_t kMostThreads = 512;  ///< that every kernel can have
constexpr size_t kLeastChunk = 4096;
constexpr size_t kLeastOnFlow = 16384;  ///< of messages
constexpr size_t kLeastGrain = 512;     ///< of chunks

/// What a flow has in all, in as few pieces as there is room for, and those of the same size.
uint32_t evenly(size_t bytes, size_t room) {
  const size_t piece = ceilDiv(bytes, std::max<size_t>(1, ceilDiv(bytes, room)));
  const size_t grains = ceilDiv(piece, kLeastGrain) * kLeastGrain;
  return static_cast<uint32_t>(std::min(room, std::max(grains, kLeastChunk)));
}

/// What the target asks for, as far as kernels can have it: whole warps.
uint32_t threadsOf(const GpuTarget& target, uint32_t most) {
  if (target.threads == 0) return most;
  return std::max(kWarp, std::min(target.threads, most) / kWarp * kWarp);
}

}  // namespace

uint32_t GpuContext::flowsOf(uint32_t multiprocessors) {
  return std::min(device::kMostRows * multiprocessors, device::kMaxFlows);
}

GpuContext::GpuContext(const device::Team& team, int device, uint32_t multiprocessors,
                       SymmetricMemory& symmetric)
    : team(team),
      device(device),
      rank(team.rank),
      size(team.size),
      moving(MovingKernels::of(device, static_cast<int>(team.size))),
      rows_(multiprocessors < team.flows ? device::kMostRows : 1),
      symmetric_(symmetric) {}

/// A capture waits until the others have mapped what it uses: replays do what was captured.
device::Place GpuContext::placeOf(const void* address, size_t bytes, gpu::Stream stream) const {
  if (!DeviceSegment::any()) [[likely]]
    return {};
  const bool capturing = gpu::Runtime::of(gpu::Platform::Cuda).isCapturing(stream);
  return symmetric_.find(address, bytes, capturing);
}

void GpuContext::run(gpu::Function kernel, Shape shape, const void* arguments,
                     const GpuTarget& target) const {
  void* parameters[] = {const_cast<void*>(arguments)};
  gpu::check(gpu::Driver::get().launchKernel(kernel, shape.blocks, 1, 1, shape.threads, shape.rows,
                                             1, 0, target.stream, parameters, nullptr),
             "launching a kernel");
}

GpuContext::Shape GpuContext::shapeOfFlows(uint32_t flows, const GpuTarget& target) const {
  const uint32_t rows = target.sharesGpu ? rows_ : 1;
  return {(flows + rows - 1) / rows, threadsOf(target, kFlowThreads / rows_), rows};
}

GpuContext::Shape GpuContext::shapeFor(size_t packets, uint32_t mostBlocks,
                                       const GpuTarget& target) const {
  const uint32_t wanted = target.blocks != 0 ? target.blocks : mostBlocks;
  const uint32_t most = std::min({wanted, team.flows, device::kMaxBlocks});
  const auto shape = [&](uint32_t threads) {
    return Shape{static_cast<uint32_t>(std::clamp<size_t>(ceilDiv(packets, threads), 1, most)),
                 threads};
  };
  if (target.threads != 0) return shape(threadsOf(target, kMostThreads));
  for (const uint32_t threads : {128u, 256u}) {
    if (packets <= size_t{threads} * most) return shape(threads);
  }
  return shape(512);
}

uint32_t GpuContext::flowsFor(const GpuTarget& target) const {
  return target.blocks != 0 ? std::min(target.blocks, team.flows) : team.flows;
}

uint32_t GpuContext::flowsOfPair(const GpuTarget& target, bool oneWay) const {
  // A message each way with every other rank, two with the one of two.
  const uint32_t messages = oneWay && size <= 2 ? 1 : std::max(2u, size - 1);
  return std::max(1u, flowsFor(target) / messages);
}

void GpuContext::deal(device::Transfer& transfer, size_t most) const {
  const size_t flows = std::clamp<size_t>(ceilDiv(transfer.bytes, kLeastOnFlow), 1, most);
  transfer.flows = transfer.blocks = static_cast<uint32_t>(flows);
  transfer.stepBytes = evenly(ceilDiv(transfer.bytes, flows), team.stepBytes);
}

uint32_t GpuContext::chunkFor(size_t bytes, size_t room, uint32_t flows) {
  return evenly(ceilDiv(bytes, flows), room);
}

}  // namespace ctran
