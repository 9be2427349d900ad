#include "mscclpp/host/runtime.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "interruption.h"
#include "mscclpp/env.hpp"
#include "mscclpp/errors.hpp"
#include "wait_limits.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

__thread uint3 threadIdx{0, 0, 0};
__thread uint3 blockIdx{0, 0, 0};
__thread dim3 blockDim{};
__thread dim3 gridDim{};

namespace mscclpp::host {
namespace {

constexpr size_t kStack = 1 << 20;   // bytes; pages cost memory once touched
constexpr size_t kGuard = 64 << 10;  // below each stack; the largest page of arm64
constexpr unsigned kWarp = 32;

/// What all blocks of one launch share.
struct Launched {
  explicit Launched(const std::function<void()>& kernel) : kernel(kernel) {}

  const std::function<void()>& kernel;
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::exception_ptr error;

  void fail(std::exception_ptr why) {
    const std::lock_guard lock(mutex);
    if (!error) error = std::move(why);
    failed.store(true);
  }
};

/// Thrown in threads whose launch has failed elsewhere.
struct Cancelled {};

/// Stacks that are used again: to map one takes longer than most threads of kernels run.
class Stacks {
 public:
  static Stacks& all() {
    static auto& one = *new Stacks;
    return one;
  }

  void* take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        void* const stack = free_.back();
        free_.pop_back();
        return stack;
      }
    }
    void* const mapped = ::mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (mapped == MAP_FAILED) throw Error("no memory for a stack", ErrorCode::SystemError);
    guard(mapped);
    return static_cast<char*>(mapped) + kGuard;
  }

  void give(void* stack) {
    const std::lock_guard lock(mutex_);
    if (free_.size() < kMost) {
      free_.push_back(stack);
    } else {
      ::munmap(static_cast<char*>(stack) - kGuard, kGuard + kStack);
    }
  }

 private:
  static constexpr size_t kMost = 1024;

  /// Whoever touches the guard gets SIGSEGV. `mprotect` divides a mapping, of which a process has
  /// vm.max_map_count; where there are no more, the launch goes on without the guard.
  static void guard(void* mapped) {
    constexpr int kGuardInstall = 102;  // MADV_GUARD_INSTALL, since Linux 6.13
    if (::madvise(mapped, kGuard, kGuardInstall) != 0) ::mprotect(mapped, kGuard, PROT_NONE);
  }

  std::mutex mutex_;
  std::vector<void*> free_;
};

/// A stack on which threads of a block run, one after the other as long as none waits.
class Carrier {
 public:
  Carrier() : stack_(Stacks::all().take()) {
    ::getcontext(&context_);
    context_.uc_stack.ss_sp = stack_;
    context_.uc_stack.ss_size = kStack;
    context_.uc_link = nullptr;
#if defined(__SANITIZE_THREAD__)
    fiber_ = __tsan_create_fiber(0);
#endif
  }
  ~Carrier() {
#if defined(__SANITIZE_THREAD__)
    __tsan_destroy_fiber(fiber_);
#endif
    Stacks::all().give(stack_);
  }
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  ucontext_t context_{};
  void* const stack_;
  void* fiber_ = nullptr;
  uint3 thread_{};  // whose turn it is when the carrier goes on
};

/// One block, on the thread of the host that it is.
class Block {
 public:
  Block(Launched& launched, dim3 grid, dim3 size, uint3 index, size_t sharedBytes)
      : launched_(launched),
        size_(size),
        threads_(size.x * size.y * size.z),
        alive_(threads_),
        warps_((threads_ + kWarp - 1) / kWarp),
        shared_(sharedBytes) {
    blockIdx = index;
    blockDim = size;
    gridDim = grid;
    for (size_t w = 0; w < warps_.size(); ++w) {
      warps_[w].alive = std::min<unsigned>(kWarp, threads_ - static_cast<unsigned>(w) * kWarp);
    }
  }

  void run();
  void yield();
  void syncThreads();
  void syncWarp();
  uint64_t shuffle(uint64_t value, int lane);
  void* shared() { return shared_.data(); }
  bool failed() const { return launched_.failed.load(std::memory_order_relaxed); }

 private:
  struct Barrier {
    unsigned alive = 0;
    unsigned arrived = 0;
    uint64_t round = 0;
    void release() {
      if (arrived == 0 || arrived < alive) return;
      arrived = 0;
      ++round;
    }
  };
  struct Warp : Barrier {
    uint64_t values[kWarp] = {};
  };

  static void enter();
  void carry();
  void wait(Barrier& barrier);
  void switchTo(Carrier* to);
  unsigned linear() const { return threadIdx.x + size_.x * (threadIdx.y + size_.y * threadIdx.z); }

  Launched& launched_;
  const dim3 size_;
  const unsigned threads_;
  unsigned next_ = 0;  // of the threads, that has not begun
  unsigned alive_;     // that have not ended
  Barrier all_{threads_, 0, 0};
  std::vector<Warp> warps_;
  std::vector<std::max_align_t> shared_;
  std::vector<std::unique_ptr<Carrier>> carriers_;
  size_t turn_ = 0;
  Carrier* running_ = nullptr;
  ucontext_t home_{};
  void* homeFiber_ = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  const void* homeStack_ = nullptr;
  size_t homeStackBytes_ = 0;
#endif
};

thread_local constinit Block* gBlock = nullptr;

/// To a carrier, or home. Comes back when it is this one's turn again.
void Block::switchTo(Carrier* to) {
  Carrier* const from = running_;
  if (from == to) return;
  if (from != nullptr) from->thread_ = threadIdx;
  running_ = to;
  if (to != nullptr) threadIdx = to->thread_;
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(to == nullptr ? homeFiber_ : to->fiber_, 0);
#endif
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, to == nullptr ? homeStack_ : to->stack_,
                                 to == nullptr ? homeStackBytes_ : kStack);
#endif
  ::swapcontext(from == nullptr ? &home_ : &from->context_, to == nullptr ? &home_ : &to->context_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

void Block::enter() {
#if defined(__SANITIZE_ADDRESS__)
  Block& block = *gBlock;
  const void* from = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &from, &bytes);
  if (block.homeStack_ == nullptr) {  // the first carrier is entered from home
    block.homeStack_ = from;
    block.homeStackBytes_ = bytes;
  }
#endif
  gBlock->carry();
}

void Block::carry() {
  while (next_ < threads_) {
    const unsigned number = next_++;
    threadIdx = {number % size_.x, number / size_.x % size_.y, number / (size_.x * size_.y)};
    try {
      launched_.kernel();
    } catch (const Cancelled&) {
    } catch (...) {
      launched_.fail(std::current_exception());
    }
    // Who has ended is waited for no more.
    --alive_;
    Warp& warp = warps_[number / kWarp];
    --warp.alive;
    warp.release();
    --all_.alive;
    all_.release();
  }
  // This carrier is done; those whose threads wait go on.
  running_->thread_ = {~0U, 0, 0};
  while (alive_ > 0) yield();
  while (true) switchTo(nullptr);
}

void Block::run() {
  gBlock = this;
#if defined(__SANITIZE_THREAD__)
  homeFiber_ = __tsan_get_current_fiber();
#endif
  yield();
  gBlock = nullptr;
}

/// Whoever comes next: a new carrier while there are threads that have not begun, else in turns.
void Block::yield() {
  if (next_ < threads_) {
    carriers_.push_back(std::make_unique<Carrier>());
    ::makecontext(&carriers_.back()->context_, &Block::enter, 0);
    switchTo(carriers_.back().get());
    return;
  }
  if (carriers_.size() < 2) return;
  turn_ = (turn_ + 1) % carriers_.size();
  switchTo(carriers_[turn_].get());
}

void Block::wait(Barrier& barrier) {
  const uint64_t round = barrier.round;
  ++barrier.arrived;
  barrier.release();
  while (barrier.round == round) {
    if (failed()) throw Cancelled();
    if (carriers_.size() < 2 && next_ == threads_) {
      throw Error("a thread waits for threads of its block that are not there",
                  ErrorCode::InternalError);
    }
    yield();
  }
}

void Block::syncThreads() { wait(all_); }
void Block::syncWarp() { wait(warps_[linear() / kWarp]); }

uint64_t Block::shuffle(uint64_t value, int lane) {
  Warp& warp = warps_[linear() / kWarp];
  warp.values[linear() % kWarp] = value;
  wait(warp);
  const uint64_t result = warp.values[static_cast<unsigned>(lane) % kWarp];
  wait(warp);
  return result;
}

/// Of all three, or something larger than `most` if that is larger.
uint64_t product(dim3 size, uint64_t most) {
  const uint64_t plane = uint64_t{size.x} * size.y;  // each has 32 bits
  return plane > most ? plane : plane * size.z;
}

int64_t nowNanos() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

Error lateBy(int64_t seconds, const std::string& whom) {
  return Error("waited " + std::to_string(seconds) + " s for " + whom +
                   ": does it execute the same? (MSCCLPP_TIMEOUT sets the limit)",
               ErrorCode::Timeout);
}

Error hasEnded(const WaitLimit& limit) {
  return Error("waiting for rank " + std::to_string(limit.peer) + ", whose process has ended",
               ErrorCode::RemoteError);
}

}  // namespace

void launch(dim3 grid, dim3 block, size_t sharedBytes, const std::function<void()>& kernel) {
  if (gBlock != nullptr) {
    throw Error("a kernel of the host cannot launch another", ErrorCode::InvalidUsage);
  }
  constexpr uint64_t kMostBlocks = (uint64_t{1} << 31) - 1, kMostThreads = 1024;
  constexpr size_t kMostShared = size_t{1} << 30;
  const uint64_t blocks = product(grid, kMostBlocks);
  const uint64_t threads = product(block, kMostThreads);
  if (blocks == 0 || threads == 0) {
    throw Error("a launch needs at least one block of one thread", ErrorCode::InvalidUsage);
  }
  if (blocks > kMostBlocks || threads > kMostThreads || sharedBytes > kMostShared) {
    throw Error("a launch has at most 2^31 - 1 blocks, of 1024 threads and 1 GiB of shared memory",
                ErrorCode::InvalidUsage);
  }
  Launched launched(kernel);
  const auto runBlock = [&](uint64_t number) {
    try {
      const auto n = static_cast<unsigned>(number);
      const uint3 index{n % grid.x, n / grid.x % grid.y, n / grid.x / grid.y};
      const size_t words = (sharedBytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t);
      Block(launched, grid, block, index, words).run();
    } catch (...) {
      launched.fail(std::current_exception());
    }
  };
  // As on a GPU, so many run at a time, and others as soon as one of them has ended.
  constexpr uint64_t kResident = 1024;
  std::atomic<uint64_t> next{0};
  const auto run = [&] {
    for (uint64_t b; (b = next.fetch_add(1)) < blocks && !launched.failed;) runBlock(b);
  };
  std::vector<std::thread> others;
  try {
    while (others.size() + 1 < std::min(blocks, kResident)) others.emplace_back(run);
  } catch (const std::system_error&) {  // this host has no more: there are fewer at a time
  }
  run();
  for (std::thread& other : others) other.join();
  if (launched.error) std::rethrow_exception(launched.error);
}

void* dynamicShared() { return gBlock == nullptr ? nullptr : gBlock->shared(); }
void syncThreads() {
  if (gBlock != nullptr) gBlock->syncThreads();
}
void syncWarp() {
  if (gBlock != nullptr) gBlock->syncWarp();
}
uint64_t shuffle(uint64_t value, int lane) {
  return gBlock == nullptr ? value : gBlock->shuffle(value, lane);
}

void yield() {
  if (gBlock != nullptr) {
    gBlock->yield();
  } else {
    ::sched_yield();
  }
}

void Waiting::pause() {
  ++spins_;
  if (gBlock != nullptr) {
    if (gBlock->failed()) throw Cancelled();
    gBlock->yield();
  }
  if (spins_ % 32 != 0) return;
  ::sched_yield();
  look();
}

void Waiting::giveUp(int64_t spins) const {
  throw Error("waited in vain, " + std::to_string(spins) + " spins long, for " +
                  (limit_ == nullptr ? "others" : named(*limit_, WaitEnd::None)),
              ErrorCode::Timeout);
}

void Waiting::look() {
  constexpr int64_t kBetweenChecks = 50'000'000;
  constexpr int64_t kReason = 500'000'000;  // may take the news that the peer has died
  const int64_t now = nowNanos();
  if (checked_ == 0) checked_ = now;
  if (now - checked_ > kBetweenChecks) {
    checked_ = now;
    checkInterruption();
    if (isAborted(limit_) && ++abortedChecks_ * kBetweenChecks > kReason) {
      if (isReadable(limit_->peerProcess)) throw hasEnded(*limit_);
      throw Error("waiting for " + named(*limit_, WaitEnd::Aborted), ErrorCode::Aborted);
    }
  }
  if (began_ == 0) began_ = now;
  if (limit_ == nullptr) {
    static const int64_t seconds = 2 * int64_t{env()->timeoutSeconds};  // see MSCCLPP_WAIT_SECONDS
    if (now - began_ > seconds * 1'000'000'000) throw lateBy(seconds, "others");
    return;
  }
  const WaitEnd end = storedEnd(*limit_);
  // To look at a process takes a system call.
  const bool looksAtProcess = spins_ % 1024 == 0;
  const bool hasDied = looksAtProcess && isReadable(limit_->peerProcess);
  if (end != WaitEnd::None || hasDied) {
    // What is waited for may have come right before the end: it is looked at once more.
    if (!std::exchange(hasSeenEnd_, true)) return;
    if (end == WaitEnd::None) storeFailed(*limit_, WaitEnd::Failed);
    if (hasDied) throw hasEnded(*limit_);
    if (end != WaitEnd::Failed) {
      throw Error("waiting for " + named(*limit_, end), ErrorCode::RemoteError);
    }
    throw Error("waiting for " + named(*limit_, end) + ", after an earlier failure",
                ErrorCode::Aborted);
  }
  if (limit_->timeoutNanos > 0 && now - began_ > limit_->timeoutNanos) {
    storeFailed(*limit_, WaitEnd::Failed);
    throw lateBy(limit_->timeoutNanos / 1'000'000'000, named(*limit_, end));
  }
}

}  // namespace mscclpp::host
