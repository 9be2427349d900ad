#pragma once

#include <vector>

#include "ctran/bootstrap/hand_over.h"
#include "ctran/collective/collective.h"
#include "ctran/collective/exchange/peer_streams.h"
#include "ctran/collective/gpu/kernels.h"
#include "ctran/gpu/device/team.cuh"
#include "ctran/gpu/memory.h"

namespace ctran {

/// Runs all-gather, all-to-all and broadcast by the copy engines of the GPUs, without a
/// multiprocessor: a chunk is copied into a slot of the receiver's memory, and from there to its
/// place, while the next one comes. Each rank has two slots for every other rank; each direction of
/// each pair has a stream of its own, which a graph captures.
///
/// Bytes over the links: those of the collective. In a broadcast the root's links carry the bytes
/// once, and the links of the others as often, less what came from the root. Steps: one, for a
/// broadcast two, in chunks of a slot.
class CopyEngines {
 public:
  static constexpr const char* kName = "copy_engine";
  static bool serves(CollectiveKind kind);

  CopyEngines(const device::Team& team, int device);

  /// Allocates this rank's slots. Returns the descriptor for the other ranks.
  UniqueFd allocate();
  /// The same on all ranks; depends on CTRAN_GPU_COPY_BYTES.
  size_t memoryBytes() const { return own_.size(); }
  void connect(const HostGroup& group);

  /// Enqueues a collective that it serves: its streams wait for `stream`, and `stream` waits for
  /// them.
  void launch(const Collective& collective, gpu::Stream stream);

 private:
  enum Word : uint32_t { Ready, Credit, Sent, Received };

  gpu::DevicePtr word(uint32_t owner, Word word, uint32_t peer, size_t slot) const;
  gpu::DevicePtr slotOf(uint32_t owner, uint32_t from, size_t slot) const;
  void signal(gpu::Function kernel, gpu::DevicePtr uses, gpu::DevicePtr flag, uint32_t peer,
              uint32_t ahead, gpu::Stream stream) const;
  size_t chunkOf(size_t bytes) const;
  void exchange(const Collective& collective, gpu::Stream stream);
  void broadcast(const Collective& collective);
  void send(const std::byte* from, size_t bytes, uint32_t to, size_t slot);
  void receive(std::byte* to, size_t bytes, uint32_t from, size_t slot);

  const device::Team& team_;
  const int device_;
  const size_t slotBytes_;
  const MovingKernels& kernels_;
  PeerStreams sends_, receives_;
  gpu::DeviceMemory own_;
  std::vector<gpu::DeviceMemory> others_;  ///< by rank; empty for this one
};

}  // namespace ctran
