#pragma once

#include <memory>

#include <mscclpp/core.hpp>
#include <mscclpp/fifo_device.hpp>

namespace mscclpp {

inline constexpr int DEFAULT_FIFO_SIZE = 512;

/// Triggers from threads of kernels to a thread of the host.
class MSCCLPP_API Fifo {
 public:
  /// `size` places, for kernels that run there. Throws Error(InvalidUsage) if that is not positive.
  explicit Fifo(int size = DEFAULT_FIFO_SIZE, DeviceType kernels = kKernelDevice);

  int size() const;
  /// The oldest trigger, if there is one.
  bool poll(ProxyTrigger& trigger) const;
  /// Frees its place: it has been handled. Throws Error if there is none.
  void pop();

  using DeviceHandle = FifoDeviceHandle;
  DeviceHandle deviceHandle() const;

  /// Of threads that wait for a place, or for what they asked for.
  std::shared_ptr<WaitLimit> limit() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace mscclpp
