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

/// A persistent all-gather or all-to-all whose outputs all ranks have mapped. Its memory, here and
/// of the others, stays what it is for as long as somebody holds this: a handle, a work or a graph.
struct PersistentCopy {
  CollectiveKind kind;
  size_t bytes;  ///< of an output, the same on all ranks
  uint32_t meeting;
  std::array<std::byte*, device::kMaxRanks> outputs{};  ///< of every rank, as mapped here
  std::shared_ptr<DeviceSegment> own;
  std::array<std::shared_ptr<gpu::DeviceMemory>, device::kMaxRanks> others;
  /// Words with bits of meetings: those that this rank holds, and, in its control block, those of
  /// which it may make calls.
  std::shared_ptr<std::atomic<uint64_t>> held, callable;

  /// This rank makes no more calls, nor may the others; graphs that have some stay as they are.
  void free() const;
  ~PersistentCopy();
};

/// Carries them out: all ranks meet, the copy engines copy straight from the input of each into the
/// outputs of all, and all ranks meet again. Two kernels of one block are all that the
/// multiprocessors do.
///
/// If the ranks do not meet, the copies run all the same, when the kernel that waits has given up:
/// a rank that has not called may find the parts of those who have in its output. Copy engines know
/// no condition, and what is on a stream cannot be taken off it.
///
/// Bytes over the links: those of the collective. Steps: one.
class PersistentCopies {
 public:
  using Meetings = std::array<uint64_t, device::kMeetings / 64>;
  /// What a rank says of its output.
  struct Offer {
    CollectiveKind kind;
    uint64_t bytes;
    device::Place place;  ///< nowhere: it does not want that, or the others have it not mapped
    Meetings held;
  };
  /// What all ranks have said; it waits for them.
  using Exchange = std::function<std::vector<Offer>(const Offer&)>;

  /// `memory` and `symmetric` outlive it.
  PersistentCopies(const PeerMemory& memory, SymmetricMemory& symmetric, int device);

  /// Collective, two exchanges. `wanted`: by this rank. Null on all ranks, if some rank does not
  /// want it or has another kind or size of output, or one that the others have not mapped within
  /// `limit`; or if there are kMeetings of them.
  std::shared_ptr<PersistentCopy> prepare(CollectiveKind kind, std::byte* output, size_t bytes,
                                          bool wanted, std::chrono::nanoseconds limit,
                                          const Exchange& exchange);

  /// Throws Error(InvalidArgument) if the call, which gets that number, is not of what was
  /// prepared, or that is gone on a rank that has not made this call.
  void validate(const Collective& collective, uint64_t number) const;
  /// A validated one.
  void launch(const Collective& collective, StagingMemory& staging, gpu::Stream stream);
  /// How often that has been called.
  size_t launched() const { return launched_; }

 private:
  std::shared_ptr<PersistentCopy> build(const std::vector<Offer>& all, std::byte* output,
                                        std::shared_ptr<DeviceSegment> segment) const;
  void meet(uint32_t meeting, gpu::Stream stream) const;

  const PeerMemory& memory_;
  SymmetricMemory& symmetric_;
  const device::Team& team_;
  const MovingKernels& kernels_;
  /// One for all peers: at any time each rank sends to another one.
  PeerStreams branch_;
  const std::shared_ptr<std::array<std::atomic<uint64_t>, device::kMeetings / 64>> held_;
  size_t launched_ = 0;
};

}  // namespace ctran
