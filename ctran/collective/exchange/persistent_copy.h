#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ctran/collective/collective.h"
#include "ctran/collective/exchange/peer_streams.h"
#include "ctran/collective/gpu/kernels.h"
#include "ctran/collective/plan/gpu.h"
#include "ctran/gpu/memory.h"
#include "ctran/memory/device_segment.h"
#include "ctran/transport/nvlink/peer_memory.h"
#include "ctran/transport/nvlink/symmetric_memory.h"

namespace ctran {

/// A persistent all-gather or all-to-all whose outputs all ranks have mapped. Its memory, on this
/// rank and on the others, stays mapped for as long as the object is held: by a handle, a work or a
/// graph.
struct PersistentCopy {
  CollectiveKind kind;
  size_t bytes;  ///< bytes of an output, the same on all ranks
  uint32_t barrier;
  std::array<std::byte*, device::kMaxRanks> outputs{};  ///< of every rank, as mapped here
  std::shared_ptr<DeviceSegment> own;
  std::array<std::shared_ptr<gpu::DeviceMemory>, device::kMaxRanks> others;
  /// Words with a bit per barrier: those that this rank holds, and, in its control block, those of
  /// which it may make calls.
  std::shared_ptr<std::atomic<uint64_t>> held, callable;

  /// Ends the calls: this rank makes no more, and the others must not, either. Graphs that hold
  /// calls stay as they are.
  void free() const;
  ~PersistentCopy();
};

/// Runs persistent collectives: all ranks meet, the copy engines copy from the input of each rank
/// straight into the outputs of all, and all ranks meet again. Multiprocessors only run two kernels
/// of one block.
///
/// If the ranks do not meet, the copies run all the same when the kernel that waits has given up: a
/// rank that has not called may find the parts of ranks that have called in its output. Copy
/// engines know no condition, and work on a stream cannot be removed.
///
/// Bytes over the links: those of the collective. Steps: one.
class PersistentCopies {
 public:
  using Barriers = std::array<uint64_t, device::kBarriers / 64>;
  /// What a rank tells the others of its output.
  struct Offer {
    CollectiveKind kind;
    uint64_t bytes;
    /// Empty: the rank does not want it, or the others have not mapped the output.
    device::Place place;
    Barriers held;
  };
  /// Returns what all ranks have said; waits for them.
  using Exchange = std::function<std::vector<Offer>(const Offer&)>;

  /// `memory` and `symmetric` have to outlive the object.
  PersistentCopies(const PeerMemory& memory, SymmetricMemory& symmetric, int device);

  /// Prepares a persistent collective. Collective, with two exchanges. `wanted`: this rank wants
  /// it. Returns null on all ranks if some rank does not want it; if kind or size of the outputs
  /// differ; if the others have not mapped an output within `limit`; or if kBarriers of them exist.
  std::shared_ptr<PersistentCopy> prepare(CollectiveKind kind, std::byte* output, size_t bytes,
                                          bool wanted, std::chrono::nanoseconds limit,
                                          const Exchange& exchange);

  /// Throws Error(InvalidArgument) if the call, which gets that number, is not the one that was
  /// prepared, or if a rank that has not made this call has freed it.
  void validate(const Collective& collective, uint64_t number) const;
  /// Enqueues a call that `validate` has accepted.
  void launch(const Collective& collective, StagingMemory& staging, gpu::Stream stream);
  /// Returns how often `launch` has been called.
  size_t launched() const { return launched_; }

 private:
  std::shared_ptr<PersistentCopy> build(const std::vector<Offer>& all, std::byte* output,
                                        std::shared_ptr<DeviceSegment> segment) const;
  void meet(uint32_t barrier, gpu::Stream stream) const;

  const PeerMemory& memory_;
  SymmetricMemory& symmetric_;
  const device::Team& team_;
  const MovingKernels& kernels_;
  /// One stream for all peers, because at any time each rank sends to another one.
  PeerStreams branch_;
  const std::shared_ptr<std::array<std::atomic<uint64_t>, device::kBarriers / 64>> held_;
  size_t launched_ = 0;
};

}  // namespace ctran
