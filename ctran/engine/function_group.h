#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "ctran/base/error.h"
#include "ctran/base/work.h"
#include "ctran/collective/plan/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/task.h"

namespace ctran {

class Communicator;
class Core;

/// What functions of the program run on that serve a communicator's calls: a communicator of the
/// same ranks for them alone, and what each of them keeps there.
class FunctionGroup {
 public:
  /// Collective; waits for all ranks, by default as long as `served` does. Throws Error.
  FunctionGroup(Communicator& served, std::chrono::nanoseconds timeout, WaitHooks* hooks);
  ~FunctionGroup();
  FunctionGroup(const FunctionGroup&) = delete;
  FunctionGroup& operator=(const FunctionGroup&) = delete;

  /// Runs the function on this thread. What it throws ends it on all ranks; throws an Error that
  /// names it and the rank on which it failed first. One thread at a time.
  void run(const std::shared_ptr<const PlanAlgorithm>& algorithm, const PlacedCall& call,
           void* stream);
  /// Of what functions wait for on the host.
  void setTimeout(std::chrono::nanoseconds timeout);
  /// Ends what runs, on all ranks. Any thread.
  void end(const Error& error);
  /// Returns what has failed on a stream. Any thread.
  std::optional<Error> trouble();
  /// The other ranks no longer count on this one.
  void leave();

 private:
  struct Kept {
    std::shared_ptr<const PlanAlgorithm> algorithm;  ///< the last of that owner
    std::shared_ptr<void> kept;
  };
  Error failed(const PlanAlgorithm& algorithm, const std::exception& error) const;

  std::shared_ptr<Communicator> group_;
  std::mutex mutex_;  // guards what follows
  /// By owner. It stays: graphs may have kernels that use it.
  std::map<const void*, Kept> kept_;
};

/// Runs functions that do a collective on memory of the host: on a thread of their own, as the
/// thread that drives a queue must not block.
class FunctionRunner {
 public:
  FunctionRunner(Core& core, Communicator& served, std::chrono::nanoseconds timeout,
                 WaitHooks* hooks);
  ~FunctionRunner();
  FunctionRunner(const FunctionRunner&) = delete;
  FunctionRunner& operator=(const FunctionRunner&) = delete;

  FunctionGroup& group() { return *group_; }

  /// A function that is running.
  class Run {
   public:
    Run(FunctionRunner& runner, const Collective& collective);
    /// Ends the function if it still runs, and waits for that, though not for ever.
    ~Run();
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    Condition ended() const;
    /// Throws what the function threw. Called when it has ended.
    void get() const;

   private:
    struct State;
    FunctionRunner& runner_;
    const std::shared_ptr<State> state_;
  };

 private:
  struct Thread;
  Core& core_;
  const std::shared_ptr<FunctionGroup> group_;
  const std::shared_ptr<Thread> thread_;
};

/// Has the function of `collective.plan` serve the call, when all ranks have come.
Task runFunction(ShmContext& shm, FunctionRunner& runner, const Collective& collective);

}  // namespace ctran
