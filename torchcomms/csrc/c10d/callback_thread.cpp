#include "torchcomms/csrc/c10d/callback_thread.hpp"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "ctran/os/process.h"

namespace torch::comms {

namespace {

class CallbackThread {
 public:
  void start() {
    if (runs_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    if (!runs_) ctran::startThread("comms-callbacks", [this] { serve(); });
    runs_ = true;
  }

  void post(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    posted_.notify_one();
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      posted_.wait(lock, [&] { return !tasks_.empty(); });
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> tasks_;
  std::atomic<bool> runs_{false};
};

// Never destroyed: the thread runs until the process ends. A forked child starts without.
std::atomic<CallbackThread*> gThread{nullptr};
[[maybe_unused]] const int gAtFork =
    pthread_atfork(nullptr, nullptr, [] { gThread.store(nullptr, std::memory_order_release); });

CallbackThread& callbackThread() {
  CallbackThread* thread = gThread.load(std::memory_order_acquire);
  if (thread == nullptr) {
    auto* fresh = new CallbackThread;
    if (gThread.compare_exchange_strong(thread, fresh, std::memory_order_acq_rel)) {
      thread = fresh;
    } else {
      delete fresh;
    }
  }
  return *thread;
}

}  // namespace

void startCallbacks() { callbackThread().start(); }

void postCallback(std::function<void()> task) { callbackThread().post(std::move(task)); }

}  // namespace torch::comms
