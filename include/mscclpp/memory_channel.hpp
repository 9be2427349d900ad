#pragma once

#include <memory>

#include <mscclpp/core.hpp>
#include <mscclpp/memory_channel_device.hpp>
#include <mscclpp/semaphore.hpp>

namespace mscclpp {

/// Signals between threads of two ranks.
class MSCCLPP_API BaseMemoryChannel {
 public:
  BaseMemoryChannel() = default;
  explicit BaseMemoryChannel(std::shared_ptr<MemoryDevice2DeviceSemaphore> semaphore)
      : semaphore_(std::move(semaphore)) {}
  explicit BaseMemoryChannel(const Semaphore& semaphore)
      : semaphore_(std::make_shared<MemoryDevice2DeviceSemaphore>(semaphore)) {}

  using DeviceHandle = BaseMemoryChannelDeviceHandle;
  DeviceHandle deviceHandle() const;

 protected:
  std::shared_ptr<MemoryDevice2DeviceSemaphore> semaphore_;
};

/// Threads of this rank read and write memory of the other. It keeps all of it alive.
class MSCCLPP_API MemoryChannel : public BaseMemoryChannel {
 public:
  MemoryChannel() = default;
  /// `dst` is of the other rank, `src` of this one. Packets for this rank come to `packetBuffer`.
  /// Throws Error(InvalidUsage) if threads cannot reach `dst`.
  MemoryChannel(std::shared_ptr<MemoryDevice2DeviceSemaphore> semaphore,
                const RegisteredMemory& dst, const RegisteredMemory& src,
                void* packetBuffer = nullptr);
  MemoryChannel(const Semaphore& semaphore, const RegisteredMemory& dst,
                const RegisteredMemory& src, void* packetBuffer = nullptr);

  using DeviceHandle = MemoryChannelDeviceHandle;
  DeviceHandle deviceHandle() const;

 private:
  RegisteredMemory dst_;
  RegisteredMemory src_;
  void* packetBuffer_ = nullptr;
};

}  // namespace mscclpp
