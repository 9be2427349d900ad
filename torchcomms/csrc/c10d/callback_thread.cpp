#include "torchcomms/csrc/c10d/callback_thread.hpp"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace torch::comms {

namespace {

class CallbackThread {
 public:
  void post(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    if (!runs_) std::thread([this] { serve(); }).detach();
    runs_ = true;
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
  bool runs_ = false;
};

// Never destroyed: the thread runs until the process ends. A forked child starts without.
std::atomic<CallbackThread*> gThread{nullptr};
[[maybe_unused]] const int gAtFork =
    pthread_atfork(nullptr, nullptr, [] { gThread.store(nullptr, std::memory_order_release); });

}  // namespace

void postCallback(std::function<void()> task) {
  CallbackThread* thread = gThread.load(std::memory_order_acquire);
  if (thread == nullptr) {
    auto* fresh = new CallbackThread;
    if (gThread.compare_exchange_strong(thread, fresh, std::memory_order_acq_rel)) {
      thread = fresh;
    } else {
      delete fresh;
    }
  }
  thread->post(std::move(task));
}

}  // namespace torch::comms
