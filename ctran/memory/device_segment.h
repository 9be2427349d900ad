#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ctran/bootstrap/handshake.h"
#include "ctran/gpu/memory.h"

namespace ctran {

/// Device memory that the GPUs of other processes of this host can map. It lives as long as it is
/// held here or mapped elsewhere.
///
/// Other processes get it by a ticket, which is plain data: they ask this process for the
/// descriptor, over a socket that a thread of the engine serves. A process of the same user that
/// has the ticket gets it, once both ends have proved its key.
class DeviceSegment {
 public:
  /// Names a segment for other processes. No other segment ever has that name.
  struct Ticket {
    std::array<char, 32> socket{};
    JobKey key{};
    uint64_t number = 0;
    uint64_t bytes = 0;
  };

  /// Allocates at least `bytes`, rounded up to whole pages (2 MiB on most devices); not zeroed.
  /// Throws Error.
  static std::shared_ptr<DeviceSegment> allocate(int device, size_t bytes);

  /// Makes a segment of somebody else's memory that holds all of [address, address + bytes) in one
  /// allocation: ncclMemAlloc's, or torch's expandable segments. It is one for as long as it stays
  /// mapped there and the result is held. Returns null if it is a segment already, or cannot be
  /// one. Destroying the result calls release().
  static std::shared_ptr<void> adopt(int device, const void* address, size_t bytes);

  /// Returns the segment that holds all of [address, address + bytes); null for any other memory.
  /// Cheap if this process has no segments.
  static std::shared_ptr<DeviceSegment> find(const void* address, size_t bytes) {
    return any() ? search(address, bytes) : nullptr;
  }

  /// Returns whether this process has any segment.
  static bool any() { return count_.load(std::memory_order_relaxed) != 0; }

  /// Returns the segment behind a ticket, as `device` reads and writes it. Throws Error, within a
  /// second.
  static std::shared_ptr<gpu::DeviceMemory> open(const Ticket& ticket, int device);

  /// Releases a segment for its last user: when all that runs on its device has ended, as cuMemFree
  /// does. By then other processes do not touch it any more, either. Never throws.
  static void release(std::shared_ptr<DeviceSegment> last) noexcept;

  ~DeviceSegment();
  DeviceSegment(const DeviceSegment&) = delete;
  DeviceSegment& operator=(const DeviceSegment&) = delete;

  /// Throws Error(System) if this process cannot serve the segment.
  Ticket ticket() const;
  int device() const { return device_; }
  gpu::DevicePtr address() const { return memory_.address(); }
  size_t size() const { return memory_.size(); }
  uint64_t number() const { return number_; }  ///< unique among the segments of this process
  int exportHandle() const { return memory_.exportHandle(); }

 private:
  DeviceSegment(int device, gpu::DeviceMemory memory, bool isAdopted);
  static std::shared_ptr<DeviceSegment> make(int device, gpu::DeviceMemory memory, bool isAdopted);
  static std::shared_ptr<DeviceSegment> search(const void* address, size_t bytes);

  static std::atomic<size_t> count_;
  const int device_;
  gpu::DeviceMemory memory_;
  const uint64_t number_;
  const bool isAdopted_;
};

}  // namespace ctran
