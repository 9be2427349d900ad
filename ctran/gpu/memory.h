#pragma once

#include <cstddef>
#include <memory>

#include "ctran/gpu/driver.h"
#include "ctran/os/shared_memory.h"

namespace ctran::gpu {

/// Device memory that other devices and other processes can map: a physical allocation and this
/// process' mapping of it. Movable. The destructor unmaps and releases it; the memory itself is
/// freed when its last mapping in any process has gone.
class DeviceMemory {
 public:
  /// Allocates at least `bytes` on `device`, which can read and write it.
  static DeviceMemory allocate(int device, size_t bytes);

  /// Maps the memory behind a descriptor from another process (or this one), so that `device` can
  /// read and write it. `bytes` is size() of the exporter. The descriptor stays the caller's.
  static DeviceMemory import(int fd, size_t bytes, int device);

  /// Holds the allocation of somebody else that is mapped at `address`. The allocation stays while
  /// this holds it; its mapping stays as long as the other one wants. Empty if there is none:
  /// cuMemAlloc's memory has none.
  static DeviceMemory retain(DevicePtr address);

  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceMemory();

  /// Returns a new descriptor for this memory, to be sent over a Unix socket and closed by the
  /// caller.
  int exportHandle() const;

  /// Lets another device of this process read and write through the same address.
  void allow(int device);

  DevicePtr address() const { return address_; }
  size_t size() const { return size_; }  ///< the requested size, rounded up to whole pages

 private:
  void swap(DeviceMemory& other) noexcept;
  void map(int device);

  MemoryHandle handle_ = 0;
  DevicePtr address_ = 0;
  size_t size_ = 0;
  bool isOthers_ = false;  ///< somebody else has made the mapping
};

/// Page-locked host memory, filled with zeros, which every device sees at the address `device`. The
/// destructor frees it by discard().
class MappedHostMemory {
 public:
  /// `device` is the device of this process.
  MappedHostMemory(int device, size_t bytes);
  ~MappedHostMemory();
  MappedHostMemory(const MappedHostMemory&) = delete;
  MappedHostMemory& operator=(const MappedHostMemory&) = delete;

  void* host() const { return host_; }
  DevicePtr device() const { return device_; }

 private:
  const int ownDevice_;
  void* host_ = nullptr;
  DevicePtr device_ = 0;
};

/// Host memory that processes share, page-locked, so that every device reads and writes it.
/// Movable. The destructor frees it by discard().
class SharedHostMemory {
 public:
  /// Allocates memory filled with zeros. `device` is the device of this process.
  static SharedHostMemory allocate(int device, const char* label, size_t bytes);
  /// Maps what is behind a descriptor of such memory, of exactly `bytes`.
  static SharedHostMemory map(int device, const UniqueFd& fd, size_t bytes);

  SharedHostMemory() = default;
  SharedHostMemory(SharedHostMemory&& other) noexcept { swap(other); }
  SharedHostMemory& operator=(SharedHostMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~SharedHostMemory();

  /// Returns a new descriptor of what was allocated here.
  UniqueFd exportHandle() const;
  std::byte* host() const { return mapping_->data(); }
  const std::shared_ptr<SharedMapping>& mapping() const { return mapping_; }
  DevicePtr address() const { return address_; }  ///< the address for devices
  size_t size() const { return mapping_ ? mapping_->size() : 0; }

 private:
  void swap(SharedHostMemory& other) noexcept;

  UniqueFd file_;  ///< the file of what was allocated here
  std::shared_ptr<SharedMapping> mapping_;
  DevicePtr address_ = 0;
  int device_ = 0;
  bool registered_ = false;
};

}  // namespace ctran::gpu
