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
/// see it, and the shapes in which kernels are launched. Its results depend only on what all ranks
/// (or both ends of a message) share.
class GpuContext {
 public:
  struct Shape {
    uint32_t blocks;
    uint32_t threads;  ///< threads of a row
    uint32_t rows = 1;
  };

  /// Returns how many flows a team has whose kernels take that many multiprocessors.
  static uint32_t flowsOf(uint32_t multiprocessors);

  /// Kernels take at most `multiprocessors`, and leave room on the others for other kernels. `team`
  /// and `symmetric` have to outlive the object.
  GpuContext(const device::Team& team, int device, uint32_t multiprocessors,
             SymmetricMemory& symmetric);

  const device::Team& team;
  const int device;
  const uint32_t rank;
  const uint32_t size;
  const MovingKernels& moving;
  /// The copy engines. `makeCopies` makes them when they are first needed; it waits for the other
  /// ranks.
  std::unique_ptr<CopyEngines> copies;
  std::function<std::unique_ptr<CopyEngines>()> makeCopies;

  GpuLimits limits(bool throughHost) const { return {team.slotBytes, team.lineBytes, throughHost}; }
  device::Place placeOf(const void* address, size_t bytes, gpu::Stream stream) const;
  /// Returns the most flows of a kernel.
  uint32_t flowsFor(const GpuTarget& target) const;
  /// Returns the most flows of a message, if there may be one to each other rank and one from each.
  uint32_t flowsOfPair(const GpuTarget& target, bool oneWay = false) const;
  /// Splits a message into flows and steps, by what both ends know of it. The message is a chain of
  /// its own.
  void deal(device::Transfer& transfer, size_t mostFlows) const;
  /// Returns the bytes of a chunk, up to `room`, if each of `flows` has as many chunks of the
  /// `bytes`.
  static uint32_t chunkFor(size_t bytes, size_t room, uint32_t flows);
  /// Returns a shape in which each thread has one packet, if that does not need too many blocks.
  /// `mostBlocks` is used if the target says nothing.
  Shape shapeFor(size_t packets, uint32_t mostBlocks, const GpuTarget& target) const;
  /// Returns the shape of a kernel on that many flows.
  Shape shapeOfFlows(uint32_t flows, const GpuTarget& target) const;
  void run(gpu::Function kernel, Shape shape, const void* arguments, const GpuTarget& target) const;

 private:
  const uint32_t rows_;  ///< flows of a multiprocessor
  SymmetricMemory& symmetric_;
};

/// The threads of a warp.
inline constexpr uint32_t kWarp = 32;
/// The bytes of data in a packet of 16.
inline constexpr size_t kPacketData = 12;
/// The bytes that one rank sends another up to which packets are faster than steps.
inline constexpr size_t kPacketLimit = 512 << 10;

inline char* bytesAt(std::byte* data) { return reinterpret_cast<char*>(data); }
inline const char* bytesAt(const std::byte* data) { return reinterpret_cast<const char*>(data); }

inline constexpr size_t ceilDiv(size_t a, size_t b) { return (a + b - 1) / b; }

}  // namespace ctran
