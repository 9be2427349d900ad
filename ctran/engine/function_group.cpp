#include "ctran/engine/function_group.h"

#include <condition_variable>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "ctran/base/log.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/core.h"
#include "ctran/os/process.h"

namespace ctran {
namespace {

/// How long a function that has been told to end may take.
constexpr std::chrono::seconds kFunctionEndPatience{10};

std::string quotedName(const PlanAlgorithm& algorithm) { return "'" + algorithm.plan().name + "'"; }

}  // namespace

FunctionGroup::FunctionGroup(Communicator& served, std::chrono::nanoseconds timeout,
                             WaitHooks* hooks) {
  Collective barrier;
  barrier.startsFunctions = true;
  served.run(barrier, timeout, hooks);  // finds out if only some ranks have registered one
  std::vector<int> ranks(served.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  group_ = served.splitPart(ranks, served.name() + "/functions", {}, hooks);
  served.addDependent(group_);
}

FunctionGroup::~FunctionGroup() = default;

void FunctionGroup::run(const std::shared_ptr<const PlanAlgorithm>& algorithm,
                        const PlacedCall& call, void* stream) {
  const UserFunction& function = *algorithm->function();
  const void* const owner = function.owner ? function.owner.get() : algorithm.get();
  std::shared_ptr<void> kept;
  {
    const std::lock_guard lock(mutex_);
    kept = kept_[owner].kept;
  }
  std::optional<Error> error;
  try {
    function.run({group_, kept, call.collective, call.bytes, stream});
  } catch (const std::exception& thrown) {
    error = failed(*algorithm, thrown);
  } catch (...) {
    error = failed(*algorithm, std::runtime_error("it threw something that is no exception"));
  }
  Kept before{algorithm, std::move(kept)};  // goes without the lock: it is the program's
  {
    const std::lock_guard lock(mutex_);
    std::swap(kept_[owner], before);
  }
  if (!error) return;
  end(*error);
  throw *error;
}

/// If another rank has ended it, what happened there.
Error FunctionGroup::failed(const PlanAlgorithm& algorithm, const std::exception& thrown) const {
  try {
    group_->core().poll();
    group_->core().throwIfFailed();
  } catch (const Error& first) {
    return first;
  }
  const auto* const known = dynamic_cast<const Error*>(&thrown);
  std::vector<int> ranks = known != nullptr ? known->ranks() : std::vector<int>();
  if (ranks.empty()) ranks.push_back(group_->rank());
  const ErrorKind kind = known == nullptr || known->kind() == ErrorKind::InvalidArgument
                             ? ErrorKind::System
                             : known->kind();
  return {kind,
          "the algorithm " + quotedName(algorithm) + " failed on rank " +
              std::to_string(group_->rank()) + ": " +
              (known != nullptr ? known->message() : std::string(thrown.what())),
          std::move(ranks), std::string(nameOf(algorithm.plan().kind)),
          known != nullptr ? known->hint() : std::string()};
}

void FunctionGroup::setTimeout(std::chrono::nanoseconds timeout) { group_->setTimeout(timeout); }

void FunctionGroup::end(const Error& error) { group_->breakWith(error); }

std::optional<Error> FunctionGroup::trouble() {
  std::vector<Kept> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [owner, one] : kept_) {
      if (one.kept) all.push_back(one);
    }
  }
  for (const auto& [algorithm, kept] : all) {
    if (!algorithm->function()->check) continue;
    try {
      algorithm->function()->check(kept.get());
    } catch (const std::exception& thrown) {
      return failed(*algorithm, thrown);
    }
  }
  return std::nullopt;
}

void FunctionGroup::leave() { group_->leave(); }

/// What the thread and the runner share: the thread may be the last to let go.
struct FunctionRunner::Thread {
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::function<void()> job;
  bool stops = false;
  Core* core = nullptr;  ///< null when the runner has gone

  void loop() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stops || job; });
      if (!job) return;
      auto next = std::exchange(job, nullptr);
      lock.unlock();
      next();
      next = nullptr;  // what it holds is the program's: it goes without the lock
      lock.lock();
      if (core != nullptr) core->wakeOwn();
    }
  }
};

struct FunctionRunner::Run::State {
  std::shared_ptr<FunctionGroup> group;
  std::shared_ptr<const PlanAlgorithm> algorithm;
  std::vector<std::byte> staging;
  PlacedCall call;
  std::optional<Error> error;
  std::atomic<uint64_t> ended{0};

  void run() {
    const auto copy = [](const std::vector<PlacedCall::Copy>& copies) {
      for (const PlacedCall::Copy& one : copies) std::memmove(one.to, one.from, one.bytes);
    };
    try {
      copy(call.before);
      group->run(algorithm, call, nullptr);
      copy(call.after);
    } catch (const Error& thrown) {
      error = thrown;
    }
    ended.store(1, std::memory_order_release);
  }
};

FunctionRunner::FunctionRunner(Core& core, Communicator& served, std::chrono::nanoseconds timeout,
                               WaitHooks* hooks)
    : core_(core),
      group_(std::make_shared<FunctionGroup>(served, timeout, hooks)),
      thread_(std::make_shared<Thread>()) {
  group_->setTimeout(kLongestTimeout);  // the calls that are served have theirs
  thread_->core = &core;
  startThread("ctran-function", [thread = thread_] { thread->loop(); });
}

FunctionRunner::~FunctionRunner() {
  if (!core_.belongsHere()) return;  // the child of a fork has no such thread
  const std::lock_guard lock(thread_->mutex);
  thread_->stops = true;
  thread_->core = nullptr;
  thread_->changed.notify_all();
}

FunctionRunner::Run::Run(FunctionRunner& runner, const Collective& collective)
    : runner_(runner), state_(std::make_shared<State>()) {
  state_->group = runner.group_;
  state_->algorithm = collective.plan;
  state_->call = placed(collective, collective.plan->function()->places, runner.core_.rank(),
                        runner.core_.size(), [this](size_t bytes) {
                          state_->staging.resize(bytes);
                          return state_->staging.data();
                        });
  const std::lock_guard lock(runner.thread_->mutex);
  runner.thread_->job = [state = state_] { state->run(); };
  runner.thread_->changed.notify_all();
}

Condition FunctionRunner::Run::ended() const { return Condition::ofAnybody(state_->ended, 1); }

void FunctionRunner::Run::get() const {
  if (state_->error) throw Error(*state_->error);
}

FunctionRunner::Run::~Run() {
  if (state_->ended.load(std::memory_order_acquire) != 0 || !runner_.core_.belongsHere()) return;
  const std::string name = quotedName(*state_->algorithm);
  try {
    runner_.core_.throwIfFailed();
    runner_.group().end(Error(ErrorKind::Aborted, "rank " + std::to_string(runner_.core_.rank()) +
                                                      " has given up the algorithm " + name));
  } catch (const Error& error) {
    runner_.group().end(error);
  }
  const auto until = std::chrono::steady_clock::now() + kFunctionEndPatience;
  while (state_->ended.load(std::memory_order_acquire) == 0) {
    if (std::chrono::steady_clock::now() >= until) {
      log(LogComponent::Engine, LogLevel::Error,
          "the algorithm %s does not end; it may still write into the buffers of the call",
          name.c_str());
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Task runFunction(ShmContext& shm, FunctionRunner& runner, const Collective& c) {
  co_await shm.slotFree();
  shm.publishSlot();
  co_await shm.allArrived();
  shm.checkAll();
  if (c.count == 0) co_return;
  FunctionRunner::Run run(runner, c);
  co_await run.ended();
  run.get();
}

}  // namespace ctran
