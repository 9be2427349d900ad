#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "ctran/collective/collective.h"
#include "ctran/collective/gpu/kernels.h"
#include "ctran/gpu/device/team.cuh"
#include "ctran/gpu/driver.h"
#include "ctran/transport/nvlink/symmetric_memory.h"

namespace ctran {

namespace device {
struct Transfer;
}

/// A reduce-scatter of fp32 sends bf16, rounded at random.
struct Quantization {
  uint64_t seed = 0;
  const uint64_t* seedAt = nullptr;  ///< if not null, the seed is there, in device memory
};

/// Chooses kernels and their shapes, and puts them on streams. What it chooses depends on the
/// arguments that all ranks (or both ends of a message) share, and on nothing else.
class GpuLauncher {
 public:
  /// Where an operation goes. `sharesGpu`: other kernels may run at the same time, and lose less
  /// when it takes all of a few multiprocessors than a part of many. Alone it is faster on many.
  /// `timeout`: the longest wait inside a kernel, replays included; 0: the communicator's.
  struct Target {
    gpu::Stream stream;
    bool sharesGpu = false;
    std::chrono::nanoseconds timeout{0};
  };

  /// How many lanes a team has whose kernels take so many multiprocessors.
  static uint32_t lanesOf(uint32_t multiprocessors);

  /// Kernels take as many multiprocessors as that at most, and leave the others room to run at the
  /// same time. `team` and `symmetric` outlive it.
  GpuLauncher(const device::Team& team, int device, uint32_t multiprocessors,
              SymmetricMemory& symmetric);

  /// One collective, validated.
  void launch(const Collective& collective, Target target) const;
  /// The same of a reduce-scatter, sum or average, of fp32.
  void launchQuantized(const Collective& collective, const Quantization& quantization,
                       Target target) const;
  /// Sends and receives that run at the same time. Those of one peer and direction keep their
  /// order.
  void launchMessages(std::span<const Collective> messages, Target target) const;

 private:
  /// What this rank sends to, and receives from, every rank.
  struct Messages {
    const char* from[device::kMaxRanks] = {};
    char* to[device::kMaxRanks] = {};
    size_t sendBytes[device::kMaxRanks] = {};
    size_t receiveBytes[device::kMaxRanks] = {};
    uint32_t sendTags[device::kMaxRanks] = {};
    uint32_t receiveTags[device::kMaxRanks] = {};
    /// Masks of ranks to and from which a message is labelled, even if it is of nothing: no
    /// signature says that both ends mean the same.
    uint32_t sends = 0;
    uint32_t receives = 0;
    bool oneWay = false;  ///< of all pairs of ranks, one at most sends to the other
  };
  /// Whether both ends are the same memory: data changes places.
  static bool swaps(const Messages& messages, uint32_t peer);
  /// Throws Error(InvalidArgument) of what cannot be served.
  void checkSwaps(const Messages& messages) const;
  struct Shape {
    uint32_t blocks;
    uint32_t threads;  ///< of a row
    uint32_t rows = 1;
  };

  device::Place placeOf(const void* address, size_t bytes, gpu::Stream stream) const;
  Messages messagesOf(const Collective& collective) const;
  void exchange(const Messages& messages, bool inPackets, Target target) const;
  void exchangePackets(const Messages& messages, Target target) const;
  void exchangeLanes(const Messages& messages, Target target) const;
  void broadcastInParts(const Collective& collective, Target target) const;
  void exchangeRows(const Collective& collective, Target target) const;
  void reduce(const Collective& collective, Target target) const;
  /// Most lanes of a message, where there may be one to each other rank and one from it.
  uint32_t lanesOfPair(bool oneWay = false) const;
  /// A message to lanes, in steps: what both ends know of it says how.
  void deal(device::Transfer& transfer, size_t mostLanes) const;
  /// Of `bytes`, of which every lane has as many, in chunks of up to `room`.
  uint32_t chunkFor(size_t bytes, size_t room) const;
  /// For packets, of which each thread should have one, if that needs not too many blocks.
  Shape shapeFor(size_t packets, uint32_t mostBlocks) const;
  /// For a kernel on so many lanes.
  Shape shapeOfLanes(uint32_t lanes, Target target) const;
  void run(gpu::Function kernel, Shape shape, const void* arguments, Target target) const;

  const device::Team& team_;
  const uint32_t rows_;  ///< lanes of a multiprocessor
  const int device_;
  const uint32_t rank_;
  const uint32_t size_;
  const MovingKernels& moving_;
  SymmetricMemory& symmetric_;
};

}  // namespace ctran
