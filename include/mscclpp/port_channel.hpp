#pragma once

#include <memory>

#include <mscclpp/port_channel_device.hpp>
#include <mscclpp/proxy.hpp>
#include <mscclpp/semaphore.hpp>

namespace mscclpp {

class BasePortChannel;
class PortChannel;

/// The proxy of port channels: what it knows by number, and the thread that moves the data.
class MSCCLPP_API ProxyService {
 public:
  /// For kernels that run there.
  explicit ProxyService(int fifoSize = DEFAULT_FIFO_SIZE, DeviceType kernels = kKernelDevice);
  ~ProxyService();
  ProxyService(const ProxyService&) = delete;
  ProxyService& operator=(const ProxyService&) = delete;

  /// Collective between both ends of the connection.
  SemaphoreId buildAndAddSemaphore(Communicator& communicator, const Connection& connection);
  SemaphoreId addSemaphore(const Semaphore& semaphore);
  SemaphoreId addSemaphore(std::shared_ptr<Host2DeviceSemaphore> semaphore);
  MemoryId addMemory(const RegisteredMemory& memory);
  MemoryId nextMemoryId(uint32_t count = 1) const;

  std::shared_ptr<Host2DeviceSemaphore> semaphore(SemaphoreId id) const;
  BasePortChannel basePortChannel(SemaphoreId id);
  PortChannel portChannel(SemaphoreId id, MemoryId dst, MemoryId src);

  void startProxy(bool blocking = false);
  /// Throws what went wrong on the proxy's thread.
  void stopProxy();

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;
  const std::shared_ptr<Proxy> proxy_;
};

/// Threads of this rank ask, and the proxy moves the data.
class MSCCLPP_API BasePortChannel {
 public:
  BasePortChannel() = default;
  BasePortChannel(SemaphoreId id, std::shared_ptr<Host2DeviceSemaphore> semaphore,
                  std::shared_ptr<Proxy> proxy)
      : id_(id), semaphore_(std::move(semaphore)), proxy_(std::move(proxy)) {}

  using DeviceHandle = BasePortChannelDeviceHandle;
  DeviceHandle deviceHandle() const;

 protected:
  SemaphoreId id_ = 0;
  std::shared_ptr<Host2DeviceSemaphore> semaphore_;
  std::shared_ptr<Proxy> proxy_;
};

/// The same, from one memory of this rank to one of the other.
class MSCCLPP_API PortChannel : public BasePortChannel {
 public:
  PortChannel() = default;
  PortChannel(SemaphoreId id, std::shared_ptr<Host2DeviceSemaphore> semaphore,
              std::shared_ptr<Proxy> proxy, MemoryId dst, MemoryId src)
      : BasePortChannel(id, std::move(semaphore), std::move(proxy)), dst_(dst), src_(src) {}

  using DeviceHandle = PortChannelDeviceHandle;
  DeviceHandle deviceHandle() const;

 private:
  MemoryId dst_ = 0;
  MemoryId src_ = 0;
};

}  // namespace mscclpp
