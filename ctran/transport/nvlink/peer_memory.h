#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "ctran/bootstrap/hand_over.h"
#include "ctran/gpu/device/team.cuh"
#include "ctran/gpu/memory.h"
#include "ctran/trace/operation_ring.h"

namespace ctran {

/// What one rank shows to its own GPU and to the other ranks' processes, in shared host memory that
/// every GPU maps. Each block is one page.
struct GpuControlBlock {
  device::Control control;
  device::Report report;
  std::atomic<uint64_t> issued;  ///< collectives that this rank has put on streams
  OperationRing operations;      ///< the last operations
  /// Bit m: this rank may call what has barrier m (collective/exchange/persistent_copy.h).
  std::atomic<uint64_t> barriers[device::kBarriers / 64];
};

/// The memory through which the GPUs of one host reach each other: the scratch of every rank,
/// mapped by all, and the control blocks. Scratch lies on the rank's GPU or, if GPUs do not reach
/// each other, in the host's memory, which all of them reach. It is made in three steps, so that
/// ranks can agree on the outcome of each.
class PeerMemory {
 public:
  PeerMemory(int rank, int size, int device);
  /// CTRAN_GPU_STEP_BYTES; all ranks have to have the same.
  uint32_t stepBytes() const { return team_.stepBytes; }
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  /// From now on scratch lies in the host's memory; earlier scratch is freed.
  void goThroughHost();
  bool isThroughHost() const { return throughHost_; }

  /// Allocates this rank's scratch, filled with zeros, for `flows` flows, and room for lines if
  /// links are known to carry them whole. Returns a descriptor for the other ranks.
  UniqueFd allocate(uint32_t flows, bool hasLines);
  size_t scratchBytes() const {
    return scratch_.empty() ? 0 : scratch_[rank_].size() + hostScratch_[rank_].size();
  }
  static size_t controlBlockBytes(int size);

  /// Maps what the others have allocated (`bytes` per rank), and the control blocks, with `extra`
  /// bytes after them.
  void connect(const HostGroup& group, const std::vector<size_t>& bytes, size_t extra);
  const std::shared_ptr<SharedMapping>& controlBlocks() const { return controlBlocks_.mapping(); }

  /// The arguments of kernels; launches copy it.
  const device::Team& team() const { return team_; }
  /// Sets the longest wait inside kernels that are launched from now on; 0: what Control says.
  void setTimeout(std::chrono::nanoseconds timeout) {
    team_.timeoutNs = static_cast<uint64_t>(timeout.count());
  }
  GpuControlBlock& controlBlock(int rank) const;

 private:
  const int rank_;
  const int size_;
  const int device_;
  bool throughHost_ = false;
  bool hasLines_ = false;
  std::vector<gpu::DeviceMemory> scratch_;  ///< per rank
  /// Used instead if scratch is in the host's memory.
  std::vector<gpu::SharedHostMemory> hostScratch_;
  gpu::DeviceMemory state_;
  gpu::SharedHostMemory controlBlocks_;
  device::Team team_{};
};

}  // namespace ctran
