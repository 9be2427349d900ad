#include "mscclpp/proxy.hpp"

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <thread>
#include <utility>

#include "mscclpp/atomic_device.hpp"
#include "service_thread.h"

namespace mscclpp {
namespace {

/// Nothing to do for long: others get the core, and later the proxy sleeps between looks.
class Idle {
 public:
  void reset() { looks_ = 0; }
  void rest() {
    ++looks_;
    if (looks_ < 64) return;
    if (looks_ < 4096) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  int looks_ = 0;
};

}  // namespace

class Proxy::Impl {
 public:
  Impl(ProxyHandler handler, std::function<void()> threadInit, int fifoSize, DeviceType kernels)
      : handler_(std::move(handler)),
        threadInit_(std::move(threadInit)),
        fifo_(std::make_shared<Fifo>(fifoSize, kernels)) {}

  void start(bool blocking) {
    if (thread_.joinable()) return;
    isStopping_.store(false);
    // What was refused by an earlier run is refused no more.
    storeRelaxedSystem(&fifo_->limit()->failed, 0);
    error_ = nullptr;
    std::promise<void> begun;
    std::future<void> hasBegun = begun.get_future();
    thread_ = serviceThread([this, begun = std::move(begun)]() mutable { run(std::move(begun)); });
    if (blocking) hasBegun.get();
  }

  void stop() {
    isStopping_.store(true);
    if (thread_.joinable()) thread_.join();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  std::shared_ptr<Fifo> fifo() const { return fifo_; }

 private:
  void run(std::promise<void> begun) {
    try {
      if (threadInit_) threadInit_();
      begun.set_value();
    } catch (...) {
      begun.set_exception(std::current_exception());
      return fail();
    }
    try {
      handle();
    } catch (...) {
      fail();
    }
  }

  void handle() {
    ProxyTrigger trigger;
    Idle idle;
    while (true) {
      // Asked before the FIFO is: what was pushed before stop() is handled.
      const bool isLast = isStopping_.load();
      if (!fifo_->poll(trigger)) {
        if (isLast) return;
        idle.rest();
        continue;
      }
      idle.reset();
      const ProxyHandlerResult result = handler_(trigger);
      fifo_->pop();
      if (result == ProxyHandlerResult::Stop) return;
    }
  }

  /// Who waits for the proxy waits in vain.
  void fail() {
    error_ = std::current_exception();
    storeRelaxedSystem(&fifo_->limit()->failed, 1);
  }

  const ProxyHandler handler_;
  const std::function<void()> threadInit_;
  const std::shared_ptr<Fifo> fifo_;
  std::thread thread_;
  std::atomic<bool> isStopping_{false};
  std::exception_ptr error_;
};

Proxy::Proxy(ProxyHandler handler, int fifoSize, DeviceType kernels)
    : Proxy(std::move(handler), nullptr, fifoSize, kernels) {}
Proxy::Proxy(ProxyHandler handler, std::function<void()> threadInit, int fifoSize,
             DeviceType kernels)
    : impl_(std::make_unique<Impl>(std::move(handler), std::move(threadInit), fifoSize, kernels)) {}
Proxy::~Proxy() {
  try {
    impl_->stop();
  } catch (...) {  // who wants to know calls stop()
  }
}

void Proxy::start(bool blocking) { impl_->start(blocking); }
void Proxy::stop() { impl_->stop(); }
std::shared_ptr<Fifo> Proxy::fifo() const { return impl_->fifo(); }

}  // namespace mscclpp
