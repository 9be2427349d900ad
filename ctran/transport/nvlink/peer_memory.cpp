#include "ctran/transport/nvlink/peer_memory.h"

#include <cstddef>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/gpu/driver.h"
#include "ctran/gpu/runtime.h"

namespace ctran {
namespace {

using gpu::check;

static_assert(sizeof(GpuControlBlock) <= kPage);

const ConfigInt kGpuStepBytes{
    "CTRAN_GPU_STEP_BYTES", 65536,
    "What GPUs send each other at a time, where there is much. The memory that a communicator "
    "takes on each GPU is this, times 8 * CTRAN_GPU_SM_BUDGET (512 at most), for each rank, and "
    "45 MiB. The same on all ranks.",
    1024, 1 << 20};

/// All ranks' packets to one rank, in one region; and lines, of which two steps of 4 MiB fit.
constexpr size_t kRegionBytes = 6 << 20;
constexpr size_t kLineRegionBytes = 9 << 20;

/// [flags][packets][lines][steps]
struct PeerLayout {
  size_t slotBytes;
  size_t lineBytes;
  size_t packets;
  size_t lines;
  size_t steps;
  size_t bytes;

  PeerLayout(int size, uint32_t flows, uint32_t stepBytes, bool hasLines) {
    slotBytes = kRegionBytes / size / kPage * kPage;
    lineBytes = hasLines ? kLineRegionBytes / size / kPage * kPage : 0;
    packets = (device::kFlagBytes + kPage - 1) / kPage * kPage;
    lines = packets + device::kRegions * size * slotBytes;
    steps = lines + device::kRegions * size * lineBytes;
    bytes = steps + size_t{flows} * size * device::kDepth * stepBytes;
  }
};

/// On a stream of its own: the default one must not be used while another captures.
void zeroOut(const gpu::DeviceMemory& memory, int device) {
  const gpu::Runtime& runtime = gpu::Runtime::of(gpu::Platform::Cuda);
  const gpu::RelaxedCapture relaxed(runtime);
  const gpu::OwnStream stream(runtime, device, false);
  const gpu::Driver& driver = gpu::Driver::get();
  check(driver.memsetD32Async(memory.address(), 0, memory.size() / 4, stream.get()),
        "cuMemsetD32Async");
  check(driver.streamSynchronize(stream.get()), "cuStreamSynchronize");
}

}  // namespace

PeerMemory::PeerMemory(int rank, int size, int device) : rank_(rank), size_(size), device_(device) {
  team_.stepBytes = static_cast<uint32_t>(kGpuStepBytes.get()) / 32 * 32;
}

size_t PeerMemory::controlBlockBytes(int size) { return kPage * size; }

GpuControlBlock& PeerMemory::controlBlock(int rank) const {
  return *reinterpret_cast<GpuControlBlock*>(controlBlocks_.host() + kPage * rank);
}

void PeerMemory::goThroughHost() {
  scratch_.clear();
  hostScratch_.clear();
  state_ = {};
  controlBlocks_ = {};
  throughHost_ = true;
}

UniqueFd PeerMemory::allocate(uint32_t flows, bool hasLines) {
  team_.flows = flows;
  hasLines_ = hasLines && !throughHost_;
  const gpu::DeviceGuard guard(device_);
  const size_t bytes = PeerLayout(size_, flows, team_.stepBytes, hasLines_).bytes;
  scratch_.resize(size_);
  hostScratch_.resize(size_);
  state_ = gpu::DeviceMemory::allocate(device_, sizeof(device::State));
  zeroOut(state_, device_);
  if (throughHost_) {
    hostScratch_[rank_] = gpu::SharedHostMemory::allocate(device_, "ctran gpu scratch", bytes);
    return hostScratch_[rank_].exportHandle();
  }
  scratch_[rank_] = gpu::DeviceMemory::allocate(device_, bytes);
  zeroOut(scratch_[rank_], device_);
  return UniqueFd(scratch_[rank_].exportHandle());
}

void PeerMemory::connect(const HostGroup& group, const std::vector<size_t>& bytes, size_t extra) {
  const gpu::DeviceGuard guard(device_);
  const PeerLayout layout(size_, team_.flows, team_.stepBytes, hasLines_);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    if (bytes[r] < layout.bytes) {
      throw Error(ErrorKind::Mismatch,
                  "rank " + std::to_string(r) + " tells " + std::to_string(bytes[r]) +
                      " bytes of scratch, where kernels use " + std::to_string(layout.bytes),
                  {r});
    }
    if (throughHost_) {
      hostScratch_[r] = gpu::SharedHostMemory::map(device_, group.brought[r], bytes[r]);
    } else {
      scratch_[r] = gpu::DeviceMemory::import(group.brought[r].get(), bytes[r], device_);
    }
  }
  controlBlocks_ =
      gpu::SharedHostMemory::map(device_, group.memory, controlBlockBytes(size_) + extra);

  team_.rank = static_cast<uint32_t>(rank_);
  team_.size = static_cast<uint32_t>(size_);
  team_.slotBytes = layout.slotBytes;
  team_.lineBytes = layout.lineBytes;
  for (int r = 0; r < size_; ++r) {
    const gpu::DevicePtr scratch = throughHost_ ? hostScratch_[r].address() : scratch_[r].address();
    team_.flags[r] = reinterpret_cast<uint32_t*>(scratch);
    team_.scratch[r] = reinterpret_cast<char*>(scratch + layout.packets);
    team_.lines[r] = reinterpret_cast<char*>(scratch + layout.lines);
    team_.steps[r] = reinterpret_cast<char*>(scratch + layout.steps);
  }
  team_.state = reinterpret_cast<device::State*>(state_.address());
  const gpu::DevicePtr own = controlBlocks_.address() + kPage * rank_;
  team_.control =
      reinterpret_cast<const device::Control*>(own + offsetof(GpuControlBlock, control));
  team_.report = reinterpret_cast<device::Report*>(own + offsetof(GpuControlBlock, report));
}

}  // namespace ctran
