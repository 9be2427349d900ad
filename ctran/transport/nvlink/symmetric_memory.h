#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ctran/gpu/device/symmetric.cuh"
#include "ctran/gpu/runtime.h"
#include "ctran/memory/device_segment.h"
#include "ctran/os/shared_memory.h"

namespace ctran {

/// Knows which of the ranks' segments (memory/device_segment.h) the GPUs of all ranks have mapped.
///
/// When a rank first uses a segment, it writes the segment's ticket on a board that all ranks
/// share. The others map the segment when they get to it, and say so there. Kernels use it as a
/// place only when all have, so that no call ever waits for that; until then its memory is like any
/// other. When a segment has gone, the ranks are told to unmap it; the memory is free when the last
/// one has.
class SymmetricMemory {
 public:
  SymmetricMemory(int rank, int size, int device);
  static size_t boardBytes(int size);
  /// All ranks share `memory`, which has the boards from `offset` on; `state` is what kernels see.
  /// If `memory` is null, the ranks map nothing of each other's.
  void connect(std::shared_ptr<SharedMapping> memory, size_t offset, device::State* state);

  /// Returns the place of [address, address + bytes), if all other ranks have it mapped and it is
  /// aligned for kernels; an empty place otherwise. `patient`: waits some seconds, once per
  /// segment, for ranks that have not mapped it yet.
  device::Place find(const void* address, size_t bytes, bool patient);
  /// Does what `find` does, and waits up to `limit` for such ranks.
  device::Place await(const void* address, size_t bytes, std::chrono::nanoseconds limit);
  /// Returns the segment of a rank as it is mapped here, if it is. It stays mapped while it is
  /// held.
  std::shared_ptr<gpu::DeviceMemory> mappingOf(int peer, uint32_t segment) const;
  /// Does what the other ranks have asked for. The watchdog calls it now and then. Never throws.
  void serve();
  /// Returns how many segments of this rank all others have mapped.
  size_t mapped() const;
  /// Returns how often `find` has found a place.
  size_t found() const { return found_.load(std::memory_order_relaxed); }

 private:
  struct Entry;
  struct Board;
  struct Own {
    std::weak_ptr<DeviceSegment> segment;
    uint32_t slot;
    bool awaited = false;  ///< a patient `find` has waited for it, in vain or not
  };
  enum class Progress { Pending, Done, Refused };
  struct Found {
    Progress progress = Progress::Refused;
    device::Place place;
    bool isFirst = false;  ///< if pending: no caller has been told so yet
  };

  Board& board(int rank) const;
  Found look(const void* address, size_t bytes, bool awaits);
  Progress wait(uint32_t slot, std::chrono::nanoseconds limit) const;
  Own* publish(const std::shared_ptr<DeviceSegment>& segment);
  Progress progressOf(uint32_t slot) const;
  void withdraw();
  void follow(int peer);
  std::shared_ptr<gpu::DeviceMemory> map(int peer, uint32_t slot,
                                         const DeviceSegment::Ticket& ticket);
  void keep(int peer, uint32_t slot, std::shared_ptr<gpu::DeviceMemory> mapping);

  const int rank_;
  const int size_;
  const int device_;
  std::shared_ptr<SharedMapping> boards_;
  size_t offset_ = 0;
  device::State* state_ = nullptr;
  std::atomic<size_t> found_{0};
  mutable std::mutex mutex_;
  std::map<uint64_t, Own> own_;  ///< by the segment's number; guarded by mutex_
  // Used by the watchdog only.
  std::optional<gpu::OwnStream> stream_;
  std::array<uint32_t, device::kMaxRanks> followed_{};
  std::array<std::array<uint32_t, device::kSegments>, device::kMaxRanks> seen_{};
  std::array<std::array<std::shared_ptr<gpu::DeviceMemory>, device::kSegments>, device::kMaxRanks>
      mappings_;  ///< guarded by mutex_
};

}  // namespace ctran
