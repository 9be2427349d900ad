#include "ctran/stream/host_proxy.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "ctran/base/clock.h"
#include "ctran/gpu/memory.h"
#include "ctran/gpu/runtime.h"
#include "ctran/os/process.h"

namespace ctran {

namespace {

constexpr uint32_t kClear = 0, kDone = 1, kHandedOver = 2;
/// How long the thread sleeps between looks, if only the step's word tells of it and the thread
/// does not spin.
constexpr auto kBetweenLooks = std::chrono::microseconds(100);

}  // namespace

/// A word that a stream waits for, as both sides see it.
struct Word {
  std::shared_ptr<gpu::MappedHostMemory> page;
  size_t offset = 0;

  std::atomic_ref<uint32_t> host() const {
    return std::atomic_ref(
        *reinterpret_cast<uint32_t*>(static_cast<std::byte*>(page->host()) + offset));
  }
  gpu::DevicePtr device() const { return page->device() + offset; }
};

/// The proxy, its thread and its steps own it, whichever goes last.
struct HostProxy::State : std::enable_shared_from_this<State> {
  State(int device, int64_t spinNanos, std::function<void(const Error&)> failed)
      : device(device), spinNanos(spinNanos), failed(std::move(failed)) {}

  const int device;
  const int64_t spinNanos;
  const uint64_t process = processToken();
  const std::function<void(const Error&)> failed;
  std::atomic<bool> stopped{false};

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<Step*> queue;                  ///< handed over
  std::vector<Step*> expected;              ///< whose words tell of it, in the order of the calls
  int64_t spinsUntil = 0;                   ///< before the thread sleeps
  bool serving = false;                     ///< a step that is not in the queue any more
  bool runs = false;                        ///< the thread
  bool ended = false;                       ///< it is to end
  std::vector<std::shared_ptr<Step>> kept;  ///< those that no graph has
  std::vector<Word> words;                  ///< those that no step has

  Word takeWord();
  Step* next();
  void look(std::unique_lock<std::mutex>& lock);
  void serve();
};

class HostProxy::Step {
 public:
  Step(std::shared_ptr<State> state, Word word, std::function<void()> work, bool captured)
      : state(std::move(state)), word(std::move(word)), work(std::move(work)), captured(captured) {}
  ~Step() {
    const std::lock_guard lock(state->mutex);
    state->words.push_back(std::move(word));
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  const std::shared_ptr<State> state;
  Word word;
  const std::function<void()> work;
  const bool captured;
  bool isTold = true;  ///< a function of the host tells of it
  bool done = false;   ///< at least once; guarded by the mutex of State

  /// On a thread of the driver's, which must neither block nor call it.
  static void arrive(void* given) {
    auto* const step = static_cast<Step*>(given);
    State& state = *step->state;
    const std::lock_guard lock(state.mutex);
    if (!step->captured && std::erase(state.expected, step) == 0) return;  // has been seen
    state.queue.push_back(step);
    state.changed.notify_one();
  }
};

Word HostProxy::State::takeWord() {
  {
    const std::lock_guard lock(mutex);
    // The word of a step stays set if its stream was never made to wait.
    const auto clear = std::find_if(words.rbegin(), words.rend(),
                                    [](const Word& one) { return one.host().load() == kClear; });
    if (clear != words.rend()) {
      Word word = std::move(*clear);
      words.erase(std::next(clear).base());
      return word;
    }
  }
  const gpu::RelaxedCapture relaxed(gpu::Runtime::of(gpu::Platform::Cuda));
  const auto page = std::make_shared<gpu::MappedHostMemory>(device, kPage);
  const std::lock_guard lock(mutex);
  for (size_t at = sizeof(uint32_t); at < kPage; at += sizeof(uint32_t)) {
    words.push_back({page, at});
  }
  return {page, 0};
}

/// What a stream has handed over; null: nothing. With the lock.
HostProxy::Step* HostProxy::State::next() {
  if (!queue.empty()) {
    Step* const step = queue.front();
    queue.pop_front();
    return step;
  }
  // A stream that sets two words while this looks from one to the other seems to have set the later
  // one alone. So what comes before the one that was found is looked at again.
  auto found = expected.end();
  for (auto end = found;; end = found) {
    found = std::find_if(expected.begin(), end, [](Step* step) {
      return step->word.host().load(std::memory_order_acquire) == kHandedOver;
    });
    if (found != end) continue;
    if (end == expected.end()) return nullptr;
    Step* const step = *end;
    expected.erase(end);
    return step;
  }
}

/// Lets some time go by until something may have changed.
void HostProxy::State::look(std::unique_lock<std::mutex>& lock) {
  if (!expected.empty() && nowNanos() < spinsUntil) {
    lock.unlock();
    relax();
    lock.lock();
  } else if (std::all_of(expected.begin(), expected.end(), [](Step* one) { return one->isTold; })) {
    changed.wait(lock);
  } else {
    changed.wait_for(lock, kBetweenLooks);
  }
}

void HostProxy::State::serve() {
  std::unique_lock lock(mutex);
  while (true) {
    Step* const found = next();
    if (found == nullptr) {
      if (ended) break;
      look(lock);
      continue;
    }
    Step& step = *found;
    serving = true;
    lock.unlock();
    try {
      if (!stopped) step.work();
    } catch (const Error& error) {
      failed(error);
    } catch (const std::exception& error) {
      failed(Error(ErrorKind::System, error.what()));
    }
    lock.lock();
    serving = false;
    spinsUntil = nowNanos() + spinNanos;
    // The stream goes on after a failure, too: a thread that waits for it is given the error. As
    // soon as it does the step may go, which takes the lock.
    step.done = true;
    step.word.host().store(kDone, std::memory_order_release);
  }
}

/// Returns whether the stream has waited for the step. Called with the lock.
bool HostProxy::isOver(const std::shared_ptr<Step>& step) {
  return step->done && step->word.host().load(std::memory_order_acquire) == kClear;
}

HostProxy::HostProxy(int device, int64_t spinNanos, std::function<void(const Error&)> failed)
    : state_(std::make_shared<State>(device, spinNanos, std::move(failed))) {
  const gpu::Driver& driver = gpu::Driver::get();
  if (driver.streamWaitValue32 && driver.streamWriteValue32) return;
  throw Error(ErrorKind::Unsupported,
              "this NVIDIA driver cannot make a stream wait for a word in memory", {}, {},
              "GPUs of several hosts need a driver of CUDA 11.7 or later");
}

HostProxy::~HostProxy() {
  if (state_->process != processToken()) {
    static_cast<void>(new std::shared_ptr<State>(state_));  // a forked child has only a copy
    return;
  }
  stop();
  std::vector<std::shared_ptr<Step>> kept;
  const std::lock_guard lock(state_->mutex);
  kept.swap(state_->kept);
  if (std::all_of(kept.begin(), kept.end(), isOver)) {
    state_->ended = true;
    state_->changed.notify_all();
  } else {  // what a stream still has, as its device does not end, stays for good, and the thread
    static_cast<void>(new std::vector<std::shared_ptr<Step>>(std::move(kept)));
  }
}

std::shared_ptr<HostProxy::Step> HostProxy::makeStep(std::function<void()> work, bool captured) {
  State& state = *state_;
  auto step = std::make_shared<Step>(state_, state.takeWord(), std::move(work), captured);
  std::vector<std::shared_ptr<Step>> over;  // they go without the lock
  const std::lock_guard lock(state.mutex);
  if (!state.runs) {
    startThread("ctran-proxy", [kept = state_] { kept->serve(); });
    state.runs = true;
  }
  if (captured) return step;
  const auto first = std::partition(state.kept.begin(), state.kept.end(),
                                    [](const auto& one) { return !isOver(one); });
  over.assign(std::make_move_iterator(first), std::make_move_iterator(state.kept.end()));
  state.kept.erase(first, state.kept.end());
  state.kept.push_back(step);
  return step;
}

void HostProxy::handOver(Step& step, gpu::Stream stream, bool isIdle) {
  const gpu::Driver& driver = gpu::Driver::get();
  constexpr const char* kWhat = "handing a step to the host";
  if (!step.captured) {
    gpu::check(driver.streamWriteValue32(stream, step.word.device(), kHandedOver, 0), kWhat);
    State& state = *state_;
    const std::lock_guard lock(state.mutex);
    step.isTold = !isIdle || state.spinNanos == 0;
    state.expected.push_back(&step);
    state.spinsUntil = nowNanos() + state.spinNanos;
    state.changed.notify_one();
  }
  if (step.isTold) gpu::check(driver.launchHostFunc(stream, &Step::arrive, &step), kWhat);
}

void HostProxy::await(Step& step, gpu::Stream stream) {
  const gpu::Driver& driver = gpu::Driver::get();
  gpu::check(driver.streamWaitValue32(stream, step.word.device(), kDone, gpu::kWaitEqual),
             "making a stream wait for the host");
  gpu::check(driver.streamWriteValue32(stream, step.word.device(), kClear, 0),
             "clearing what a stream has waited for");
}

void HostProxy::stop() { state_->stopped = true; }

bool HostProxy::isBusy() const {
  const std::lock_guard lock(state_->mutex);
  return state_->serving || !state_->queue.empty() || !state_->expected.empty();
}

}  // namespace ctran
