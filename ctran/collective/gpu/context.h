#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "ctran/collective/algorithm.h"
#include "ctran/collective/collective.h"
#include "ctran/collective/exchange/copy_engine.h"
#include "ctran/collective/gpu/kernels.h"
#include "ctran/gpu/device/team.cuh"
#include "ctran/transport/nvlink/symmetric_memory.h"

namespace ctran {

namespace device {
struct Transfer;
}

/// What the algorithms of one communicator's GPUs work with: the memory of all ranks, as kernels
/// see it, and the shapes in which kernels are launched. What it says depends on what all ranks (or
/// both ends of a message) share, and on nothing else.
class GpuContext {
 public:
  struct Shape {
    uint32_t blocks;
    uint32_t threads;  ///< of a row
    uint32_t rows = 1;
  };

  /// How many lanes a team has whose kernels take so many multiprocessors.
  static uint32_t lanesOf(uint32_t multiprocessors);

  /// Kernels take as many multiprocessors as that at most, and leave the others room to run at the
  /// same time. `team` and `symmetric` outlive it.
  GpuContext(const device::Team& team, int device, uint32_t multiprocessors,
             SymmetricMemory& symmetric);

  const device::Team& team;
  const int device;
  const uint32_t rank;
  const uint32_t size;
  const MovingKernels& moving;
  /// Made by `makeCopies`, which waits for the other ranks, when they are first needed.
  std::unique_ptr<CopyEngines> copies;
  std::function<std::unique_ptr<CopyEngines>()> makeCopies;

  GpuLimits limits(bool throughHost) const { return {team.slotBytes, team.lineBytes, throughHost}; }
  device::Place placeOf(const void* address, size_t bytes, gpu::Stream stream) const;
  /// Most lanes of a kernel.
  uint32_t lanesFor(const GpuTarget& target) const;
  /// Most lanes of a message, where there may be one to each other rank and one from it.
  uint32_t lanesOfPair(const GpuTarget& target, bool oneWay = false) const;
  /// A message to lanes, in steps: what both ends know of it says how. A chain of its own.
  void deal(device::Transfer& transfer, size_t mostLanes) const;
  /// Of `bytes`, of which each of `lanes` has as many, in chunks of up to `room`.
  static uint32_t chunkFor(size_t bytes, size_t room, uint32_t lanes);
  /// For packets, of which each thread should have one, if that needs not too many blocks.
  /// `mostBlocks` count where the target says nothing.
  Shape shapeFor(size_t packets, uint32_t mostBlocks, const GpuTarget& target) const;
  /// For a kernel on so many lanes.
  Shape shapeOfLanes(uint32_t lanes, const GpuTarget& target) const;
  void run(gpu::Function kernel, Shape shape, const void* arguments, const GpuTarget& target) const;

 private:
  const uint32_t rows_;  ///< lanes of a multiprocessor
  SymmetricMemory& symmetric_;
};

/// Threads of a warp.
inline constexpr uint32_t kWarp = 32;
/// Bytes of data in a packet of 16.
inline constexpr size_t kPacketData = 12;
/// Bytes up to which packets are faster than steps: of what one rank sends another.
inline constexpr size_t kPacketLimit = 512 << 10;

inline char* bytesAt(std::byte* data) { return reinterpret_cast<char*>(data); }
inline const char* bytesAt(const std::byte* data) { return reinterpret_cast<const char*>(data); }

inline constexpr size_t ceilDiv(size_t a, size_t b) { return (a + b - 1) / b; }

}  // namespace ctran
