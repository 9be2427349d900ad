#include "torchcomms/csrc/c10d/callback_thread.hpp"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "ctran/base/error.h"
#include "ctran/os/process.h"

namespace torch::comms {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// A task that sleeps for so long, and waits for no work of its own, waits for one of the tasks
/// behind it: another thread serves them. They would begin in another order on other ranks if any
/// task that takes long let them.
constexpr milliseconds kPatience{1000};
/// How long a thread that is not the last one stays without a task.
constexpr milliseconds kIdle{1000};
constexpr size_t kMostThreads = 64;

thread_local bool gIsServing = false;

/// One thread, and others while its task blocks.
class CallbackThreads {
 public:
  void start() {
    if (runs_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    if (threads_ == 0) startOne();
    runs_ = true;
  }

  void post(std::function<void()> task, bool isAwaited) {
    const std::lock_guard lock(mutex_);
    if (isAwaited) {
      --expected_;
      awaited_.push_back(std::move(task));
    } else {
      if (tasks_.empty()) since_ = Clock::now();
      tasks_.push_back(std::move(task));
    }
    standBy();
    posted_.notify_one();
  }

  void expect() {
    const std::lock_guard lock(mutex_);
    ++expected_;
  }

  void retire(milliseconds limit) {
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, limit, [&] { return running_ == 0 && isIdle(); });
    isRetired_ = true;
  }

 private:
  bool isIdle() const { return awaited_.empty() && tasks_.empty(); }

  void startOne() {
    ctran::startThread("comms-callbacks", [this] { serve(); });
    ++threads_;
  }

  /// There is a thread for what is posted, should those that run all block.
  void standBy() {
    if (isIdle() || running_ < threads_ || threads_ == kMostThreads) return;
    try {
      startOne();
    } catch (const ctran::Error&) {  // those that are there go on
    }
  }

  /// How long the thread of the task that was begun last has computed.
  std::chrono::nanoseconds workOfRunning() const {
    timespec time{};
    ::clock_gettime(clock_, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }

  bool isStuck() {
    const Clock::time_point now = Clock::now();
    if (now < since_ + kPatience) return false;
    const auto worked = workOfRunning();
    const bool sleeps = worked - worked_ < kPatience / 10;
    since_ = now;
    worked_ = worked;
    return sleeps && expected_ == 0;
  }

  void serve() {
    gIsServing = true;
    std::unique_lock lock(mutex_);
    while (true) {
      if (isRetired_ || (isIdle() && threads_ == 1)) {
        posted_.wait(lock);
        continue;
      }
      if (isIdle()) {
        const bool isLong = posted_.wait_for(lock, kIdle) == std::cv_status::timeout;
        if (!isLong || !isIdle() || threads_ == 1) continue;
        --threads_;
        return;
      }
      if (awaited_.empty() && running_ > 0 && !isStuck()) {
        posted_.wait_until(lock, std::max(since_, Clock::now() - kPatience / 2) + kPatience);
        continue;
      }
      if (awaited_.empty()) ::pthread_getcpuclockid(::pthread_self(), &clock_);
      std::deque<std::function<void()>>& from = awaited_.empty() ? tasks_ : awaited_;
      std::function<void()> task = std::move(from.front());
      from.pop_front();
      since_ = Clock::now();
      worked_ = workOfRunning();
      ++running_;
      standBy();
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
      --running_;
      ended_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable posted_;
  std::condition_variable ended_;
  std::deque<std::function<void()>> tasks_;
  std::deque<std::function<void()>> awaited_;  // a task that runs may wait for them
  size_t expected_ = 0;                        // works that tasks have begun, which go on
  // When the first of `tasks_` could have been begun, or the last look at the task before it; and
  // how long its thread had computed then.
  Clock::time_point since_;
  std::chrono::nanoseconds worked_{0};
  clockid_t clock_ = CLOCK_THREAD_CPUTIME_ID;
  size_t threads_ = 0;
  size_t running_ = 0;
  bool isRetired_ = false;
  std::atomic<bool> runs_{false};
};

// Never destroyed: threads run until the process ends. A forked child starts without.
std::atomic<CallbackThreads*> gThreads{nullptr};
[[maybe_unused]] const int gAtFork =
    pthread_atfork(nullptr, nullptr, [] { gThreads.store(nullptr, std::memory_order_release); });

CallbackThreads& callbackThreads() {
  CallbackThreads* threads = gThreads.load(std::memory_order_acquire);
  if (threads == nullptr) {
    auto* fresh = new CallbackThreads;
    if (gThreads.compare_exchange_strong(threads, fresh, std::memory_order_acq_rel)) {
      threads = fresh;
    } else {
      delete fresh;
    }
  }
  return *threads;
}

}  // namespace

void startCallbacks() { callbackThreads().start(); }

void retireCallbacks(milliseconds limit) {
  CallbackThreads* const threads = gThreads.load(std::memory_order_acquire);
  if (threads != nullptr) threads->retire(limit);
}

bool expectCallback() {
  if (gIsServing) callbackThreads().expect();
  return gIsServing;
}

void postCallback(std::function<void()> task, bool isAwaited) {
  callbackThreads().post(std::move(task), isAwaited);
}

}  // namespace torch::comms
