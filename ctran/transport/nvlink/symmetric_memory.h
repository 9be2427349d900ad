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

/// Which of the ranks' segments (memory/device_segment.h) their GPUs have mapped.
///
/// A rank writes the ticket of a segment on a board that all ranks share when it first uses it; the
/// others map it, at their leisure, and say so there. Only when all have is it a place to offer, so
/// that no call ever waits for that: until then its memory is like any other. When a segment has
/// gone they are told to unmap it; the memory is free when the last has.
class SymmetricMemory {
 public:
  SymmetricMemory(int rank, int size, int device);
  static size_t boardBytes(int size);
  /// All ranks share `memory`, which has the boards from `offset` on; `state` is what kernels see.
  /// Null: they map nothing of each other's.
  void connect(std::shared_ptr<SharedMapping> memory, size_t offset, device::State* state);

  /// Where [address, address + bytes) is, if all other ranks have it mapped and it is aligned for
  /// kernels; else nowhere. `patient`: waits some seconds, once for a segment, for those that have
  /// not mapped it yet.
  device::Place find(const void* address, size_t bytes, bool patient);
  /// As `find`, waiting that long for them.
  device::Place await(const void* address, size_t bytes, std::chrono::nanoseconds limit);
  /// That rank's segment as it is mapped here, if it is; it stays mapped while somebody holds it.
  std::shared_ptr<gpu::DeviceMemory> mappingOf(int peer, uint32_t segment) const;
  /// Does what the other ranks have asked for; by the watchdog, now and then. Never throws.
  void serve();
  /// How many segments of this rank all others have mapped.
  size_t mapped() const;
  /// How often `find` has found a place.
  size_t found() const { return found_.load(std::memory_order_relaxed); }

 private:
  struct Entry;
  struct Board;
  struct Own {
    std::weak_ptr<DeviceSegment> segment;
    uint32_t slot;
    bool awaited = false;  ///< by a patient `find`, in vain or not
  };
  enum class Progress { Pending, Done, Refused };
  struct Found {
    Progress progress = Progress::Refused;
    device::Place place;
    bool isFirst = false;  ///< nobody has been told so yet, if it is pending
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
  // Of the watchdog.
  std::optional<gpu::OwnStream> stream_;
  std::array<uint32_t, device::kMaxRanks> followed_{};
  std::array<std::array<uint32_t, device::kSegments>, device::kMaxRanks> seen_{};
  std::array<std::array<std::shared_ptr<gpu::DeviceMemory>, device::kSegments>, device::kMaxRanks>
      mappings_;  ///< guarded by mutex_
};

}  // namespace ctran
