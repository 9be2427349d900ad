#pragma once

#include <cstddef>

#include "ctran/gpu/driver.h"

namespace ctran::gpu {

/// Device memory that other devices and other processes can map: a physical allocation and this
/// process' mapping of it. Movable; unmapped and released by its destructor (the memory itself goes
/// when its last mapping in any process has gone).
class DeviceMemory {
 public:
  /// At least `bytes` on `device`, readable and writable from it.
  static DeviceMemory allocate(int device, size_t bytes);

  /// The memory behind a descriptor from another process (or this one), mapped so that `device` can
  /// read and write it. `bytes` is size() of the exporter. The descriptor stays the caller's.
  static DeviceMemory import(int fd, size_t bytes, int device);

  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceMemory();

  /// A new descriptor for this memory, to be sent over a Unix socket and closed by the caller.
  int exportHandle() const;

  /// Lets one more device of this process read and write through the same address.
  void allow(int device);

  DevicePtr address() const { return address_; }
  size_t size() const { return size_; }  ///< what was asked for, rounded up to whole pages

 private:
  void swap(DeviceMemory& other) noexcept;
  void map(int device);

  MemoryHandle handle_ = 0;
  DevicePtr address_ = 0;
  size_t size_ = 0;
};

/// Page-locked host memory that every device sees under the address `device`, zeroed.
class MappedHostMemory {
 public:
  explicit MappedHostMemory(size_t bytes);
  ~MappedHostMemory();
  MappedHostMemory(const MappedHostMemory&) = delete;
  MappedHostMemory& operator=(const MappedHostMemory&) = delete;

  void* host() const { return host_; }
  DevicePtr device() const { return device_; }

 private:
  void* host_ = nullptr;
  DevicePtr device_ = 0;
};

}  // namespace ctran::gpu
