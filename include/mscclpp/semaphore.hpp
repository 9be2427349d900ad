#pragma once

#include <memory>

#include <mscclpp/core.hpp>
#include <mscclpp/semaphore_device.hpp>

namespace mscclpp {

/// Signals from the host of one rank, its proxy, to threads of the other.
class MSCCLPP_API Host2DeviceSemaphore {
 public:
  /// Collective between both ends.
  Host2DeviceSemaphore(Communicator& communicator, const Connection& connection);
  explicit Host2DeviceSemaphore(const Semaphore& semaphore);

  Connection& connection();
  /// Counts one signal at the other end. One thread at a time.
  void signal();
  /// See Semaphore.
  void alsoEndsBy(std::shared_ptr<WaitLimit> limit);

  using DeviceHandle = Host2DeviceSemaphoreDeviceHandle;
  DeviceHandle deviceHandle() const;

 private:
  Semaphore semaphore_;
  std::shared_ptr<uint64_t> expected_;
  uint64_t sent_ = 0;
};

/// Signals between hosts of ranks.
class MSCCLPP_API Host2HostSemaphore {
 public:
  Host2HostSemaphore(Communicator& communicator, const Connection& connection);
  explicit Host2HostSemaphore(const Semaphore& semaphore);

  Connection& connection();
  void signal();
  /// Whether there is a signal that was not waited for; if so, it has been now.
  bool poll();
  void wait(int64_t maxSpinCount = -1);

 private:
  Semaphore semaphore_;
  uint64_t expected_ = 0;
  uint64_t sent_ = 0;
};

/// Signals between threads of both ranks.
class MSCCLPP_API MemoryDevice2DeviceSemaphore {
 public:
  MemoryDevice2DeviceSemaphore(Communicator& communicator, const Connection& connection);
  explicit MemoryDevice2DeviceSemaphore(const Semaphore& semaphore);

  Connection& connection();

  using DeviceHandle = MemoryDevice2DeviceSemaphoreDeviceHandle;
  DeviceHandle deviceHandle() const;

 private:
  Semaphore semaphore_;
  std::shared_ptr<uint64_t> expected_;
};

}  // namespace mscclpp
