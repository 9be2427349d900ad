#include "ctran/engine/progress.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <iterator>
#include <mutex>
#include <vector>

#include "ctran/base/clock.h"
#include "ctran/base/config.h"
#include "ctran/engine/communicator.h"
#include "ctran/os/process.h"

namespace ctran {
namespace {

const ConfigInt kExitMillis{"CTRAN_EXIT_MILLIS", 1000,
                            "How long the end of a program waits for operations that were posted "
                            "and that nobody has waited for."};

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

/// Layout of the kernel's struct futex_waitv, which older headers lack.
struct FutexWait {
  uint64_t value;
  uint64_t address;
  uint32_t flags;
  uint32_t reserved;
};
constexpr uint32_t kFutex32 = 2;
constexpr size_t kMaxFutexes = 128;

class Engine {
 public:
  using When = Progress::When;

  void activate(std::shared_ptr<Communicator> communicator, When when) {
    {
      std::lock_guard lock(mutex_);
      if (std::find(active_.begin(), active_.end(), communicator) == active_.end()) {
        active_.push_back(std::move(communicator));
      }
      if (!started_) startThread("ctran-progress", [this] { loop(); });
      started_ = true;
    }
    poke(when);
  }

  void dispose(std::function<void()> end) {
    {
      std::lock_guard lock(mutex_);
      ++disposals_;
    }
    const auto ended = [this] {
      std::lock_guard lock(mutex_);
      --disposals_;
      changed_.notify_all();
    };
    try {
      startThread("ctran-leave", [end, ended] {
        end();
        ended();
      });
    } catch (const Error&) {
      end();
      ended();
    }
  }

  void retire(std::chrono::nanoseconds limit) {
    stop(limit);
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [this] { return disposals_ == 0; });
  }

  /// Stops the thread.
  void stop(std::chrono::nanoseconds limit) {
    std::unique_lock lock(mutex_);
    if (!started_) return;
    retired_ = Retired::Waiting;
    poke(When::Soon);
    changed_.wait_for(lock, limit, [this] { return onlyServing(); });
    retired_ = Retired::Stopping;
    poke(When::Soon);
    // A callback that takes its time keeps the thread: what that drives is left as it is.
    const auto hasStopped = [this] { return retired_ == Retired::Stopped; };
    if (!changed_.wait_for(lock, limit, hasStopped)) return;
    const Active abandoned = active_;
    lock.unlock();
    for (const auto& communicator : abandoned) communicator->leave();
  }

  void poke(When when) {
    // What was lazy so far is urgent when no thread waits for it, see `loop`.
    if (eager_.load(std::memory_order_relaxed)) when = When::Soon;
    news_.fetch_add(1, std::memory_order_seq_cst);
    if (when == When::Soon) urgentNews_.fetch_add(1, std::memory_order_seq_cst);
    const State state = state_.load(std::memory_order_seq_cst);
    if (state == State::Awake || (state == State::Napping && when == When::Lazily)) return;
    wakeUps_.fetch_add(1, std::memory_order_seq_cst);
    futexWake(wakeUps_);
  }

 private:
  enum class State { Awake, Napping, Asleep };
  enum class Retired { No, Waiting, Stopping, Stopped };
  using Active = std::vector<std::shared_ptr<Communicator>>;

  /// Nothing may leave this thread: what concerns a communicator breaks it, see `guarded`. What is
  /// left is want of memory for a list of them, which passes.
  void loop() {
    Progress::enter();
    while (true) {
      try {
        drive();
      } catch (const std::exception&) {
        state_.store(State::Awake, std::memory_order_seq_cst);
        ::sched_yield();
      }
    }
  }

  /// What `visit` returns for a communicator, which it breaks with what it throws.
  template <class Visit, class Result>
  static Result guarded(Communicator& communicator, Result otherwise, Visit visit) {
    try {
      return visit(communicator);
    } catch (...) {
      communicator.core().failCaughtHere("the progress of what was posted");
      return otherwise;
    }
  }

  void drive() {
    int64_t idleSince = 0;
    uint64_t newsOfLastSleep = 0;
    while (true) {
      const Seen seen{wakeUps_.load(std::memory_order_seq_cst),
                      news_.load(std::memory_order_seq_cst),
                      urgentNews_.load(std::memory_order_seq_cst)};
      stopIfRetired();
      const Active active = snapshot();
      bool moved = false;
      for (const auto& communicator : active) {
        moved |= guarded(*communicator, true, [](auto& one) { return one.progress(); });
      }
      if (moved) {
        eager_.store(true, std::memory_order_relaxed);
        idleSince = 0;
        continue;
      }
      const int64_t now = nowNanos();
      if (idleSince == 0) idleSince = now;
      const bool needed = std::any_of(active.begin(), active.end(), [](const auto& communicator) {
        return communicator->needsDriver();
      });
      if (!needed) eager_.store(false, std::memory_order_relaxed);
      if (needed && now - idleSince < kYieldNanos) {
        ::sched_yield();
        continue;
      }
      sleep(active, seen, seen.news != newsOfLastSleep, now);
      newsOfLastSleep = seen.news;
    }
  }

  void stopIfRetired() {
    std::unique_lock lock(mutex_);
    if (retired_ != Retired::Stopping) return;
    retired_ = Retired::Stopped;
    changed_.notify_all();
    changed_.wait(lock, [] { return false; });  // until the process ends
  }

  /// The communicators that still have something to do.
  Active snapshot() {
    Active done;  // let go of without the lock
    std::lock_guard lock(mutex_);
    const auto rest = std::partition(active_.begin(), active_.end(), [](const auto& communicator) {
      return !communicator->idle();
    });
    done.assign(std::make_move_iterator(rest), std::make_move_iterator(active_.end()));
    active_.erase(rest, active_.end());
    if (retired_ != Retired::No && onlyServing()) changed_.notify_all();
    return active_;
  }

  /// Called with the lock. Returns whether nothing is left for which the end of the program waits.
  bool onlyServing() const {
    return std::all_of(active_.begin(), active_.end(),
                       [](const auto& communicator) { return communicator->serves(); });
  }

  struct Seen {
    uint32_t wakeUps;
    uint64_t news, urgentNews;
  };

  void sleep(const Active& active, const Seen& seen, bool nap, int64_t now) {
    int64_t wakeUp = active.empty() ? INT64_MAX : now + kTickNanos;
    if (nap) wakeUp = std::min(wakeUp, now + kNapNanos);
    FutexWait waits[kMaxFutexes];
    size_t count = 0;
    const auto add = [&](const std::atomic<uint32_t>& word, uint32_t value) {
      waits[count++] = {value, reinterpret_cast<uint64_t>(&word), kFutex32, 0};
    };
    state_.store(nap ? State::Napping : State::Asleep, std::memory_order_seq_cst);
    add(wakeUps_, seen.wakeUps);
    bool news = nap ? urgentNews_.load(std::memory_order_seq_cst) != seen.urgentNews
                    : news_.load(std::memory_order_seq_cst) != seen.news;
    Active watched;  // those whose peers have to wake this thread
    for (const auto& communicator : active) {
      wakeUp = std::min(
          wakeUp, guarded(*communicator, now, [now](auto& one) { return one.checkStuck(now); }));
      if (!communicator->needsDriver()) continue;
      const int awaited = communicator->awaited();
      const uint32_t doorbell = communicator->core().beginSleep(awaited);
      watched.push_back(communicator);
      if (count < kMaxFutexes) {
        add(communicator->core().doorbell(), doorbell);
      } else {
        wakeUp = std::min(wakeUp, now + kPollNanos);
      }
      news |= !communicator->stillWaitsFor(awaited);
    }
    if (!news) wait(waits, count, wakeUp, now);
    for (const auto& communicator : watched) communicator->core().endSleep();
    state_.store(State::Awake, std::memory_order_seq_cst);
  }

  void wait(const FutexWait* waits, size_t count, int64_t until, int64_t now) {
    if (hasWaitv_ && count > 1) {
      const timespec time{until / 1'000'000'000, until % 1'000'000'000};
      if (::syscall(SYS_futex_waitv, waits, count, 0, &time, CLOCK_MONOTONIC) >= 0) return;
      if (errno != ENOSYS && errno != EPERM) return;
      hasWaitv_ = false;
    }
    // Linux before 5.16 sleeps on one word only: look at the others now and then.
    const int64_t limit = std::max<int64_t>(until - now, 0);
    futexWait(wakeUps_, static_cast<uint32_t>(waits[0].value),
              std::chrono::nanoseconds(count > 1 ? std::min(limit, kPollNanos) : limit));
  }

  static constexpr int64_t kYieldNanos = 50'000;
  static constexpr int64_t kNapNanos = 500'000;
  static constexpr int64_t kPollNanos = 500'000;
  static constexpr int64_t kTickNanos = 100'000'000;

  std::mutex mutex_;  // guards what follows
  Active active_;
  bool started_ = false;
  int disposals_ = 0;  // under way
  Retired retired_ = Retired::No;
  std::condition_variable changed_;  // of what retire() waits for

  std::atomic<uint64_t> news_{0}, urgentNews_{0};
  std::atomic<uint32_t> wakeUps_{0};
  std::atomic<State> state_{State::Awake};
  std::atomic<bool> eager_{false};
  bool hasWaitv_ = true;
};

// Never destroyed: the thread runs until the process ends.
std::atomic<Engine*> gEngine{nullptr};

thread_local bool tIsEngine = false;

Engine& engine() {
  Engine* existing = gEngine.load(std::memory_order_acquire);
  if (existing != nullptr) return *existing;
  auto* fresh = new Engine;
  if (gEngine.compare_exchange_strong(existing, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;
  return *existing;
}

}  // namespace

void Progress::activate(std::shared_ptr<Communicator> communicator, When when) {
  engine().activate(std::move(communicator), when);
}

void Progress::poke(When when) {
  if (Engine* existing = gEngine.load(std::memory_order_acquire)) existing->poke(when);
}

void Progress::retire() {
  if (Engine* existing = gEngine.load(std::memory_order_acquire)) {
    existing->retire(std::chrono::milliseconds(kExitMillis.get()));
  }
}

void Progress::dispose(std::function<void()> end) {
  if (!tIsEngine) return end();
  engine().dispose(std::move(end));
}

void Progress::enter() { tIsEngine = true; }

void Progress::forget() { gEngine.store(nullptr, std::memory_order_release); }

}  // namespace ctran
