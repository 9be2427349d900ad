#pragma once

#include <functional>
#include <memory>

#include <mscclpp/fifo.hpp>

namespace mscclpp {

enum class ProxyHandlerResult { Continue, Stop };

/// What does what a trigger asks for. What it throws ends the proxy, and the waits of those who
/// asked; Proxy::stop throws it.
using ProxyHandler = std::function<ProxyHandlerResult(ProxyTrigger)>;

/// A thread of the host that takes triggers from a FIFO and handles them, one after the other.
class MSCCLPP_API Proxy {
 public:
  /// For kernels that run there.
  explicit Proxy(ProxyHandler handler, int fifoSize = DEFAULT_FIFO_SIZE,
                 DeviceType kernels = kKernelDevice);
  /// `threadInit` runs first, on the new thread.
  Proxy(ProxyHandler handler, std::function<void()> threadInit, int fifoSize = DEFAULT_FIFO_SIZE,
        DeviceType kernels = kKernelDevice);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  /// With `blocking` it returns when the thread has begun.
  void start(bool blocking = false);
  /// Handles what was pushed, then ends the thread. Throws what the handler threw.
  void stop();

  std::shared_ptr<Fifo> fifo() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace mscclpp
