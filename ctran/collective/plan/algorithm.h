#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ctran/collective/collective.h"
#include "ctran/collective/plan/user_function.h"
#include "ctran/plan/plan.h"
#include "ctran/plan/verify.h"

namespace ctran {

/// A plan that has been verified, unless it is `unproved`, and prepared to serve calls; or a
/// function of the program that serves them instead.
class PlanAlgorithm {
 public:
  /// Throws Error(InvalidArgument), with the findings, if the plan is wrong, and Error(Unsupported)
  /// if shared memory cannot run it.
  explicit PlanAlgorithm(plan::Plan plan) : PlanAlgorithm(std::move(plan), false) {}
  /// Makes one of a plan in which ranks may reach buffers of each other's callers; stages these
  /// (plan/staging.h).
  static std::shared_ptr<const PlanAlgorithm> staged(const plan::Plan& plan);
  /// Makes one of a plan that may be wrong: its results may be, or it may run into its deadline,
  /// but it reaches no memory other than its own: one that is wrong is staged, and fenced
  /// (plan/fence.h).
  static std::shared_ptr<const PlanAlgorithm> unproved(const plan::Plan& plan);
  /// Makes one of a function: the plan has its name and its kind alone. Throws
  /// Error(InvalidArgument) if functions do not serve such calls.
  explicit PlanAlgorithm(UserFunction function);

  /// Returns null for a plan.
  const UserFunction* function() const { return function_ ? &*function_ : nullptr; }

  const plan::Plan& plan() const { return plan_; }
  /// Returns the plan before it was staged, for ranks that do reach those buffers; null if nothing
  /// was staged.
  const plan::Plan* direct() const { return direct_ ? &*direct_ : nullptr; }
  const plan::Properties& properties() const { return properties_; }
  uint64_t hash() const { return hash_; }

  /// Returns why the plan cannot serve a call, as far as all ranks agree about it; empty if it can.
  std::string whyNot(const Collective& collective, int size) const;

  /// A signal of a channel, or a wait for it, by its number in an execution, from 1.
  struct Signal {
    int channel;
    int64_t number;  ///< for a wait: less the credits, so it may be 0 or less
  };
  struct Step {
    std::vector<Signal> waits;
    std::vector<Signal> signals;
    bool completes = false;  ///< it completes the reduction over all ranks; an average divides here
  };
  /// [rank][lane][step]
  const Step& step(plan::LaneId lane, size_t index) const {
    return steps_[lane.rank][lane.lane][index];
  }
  /// Returns the counter that a channel moves, of the rank at which it starts.
  int counter(int channel) const { return counters_[channel]; }
  /// Returns the number of signals on the channel in each execution.
  int64_t perExecution(int channel) const { return perExecution_[channel]; }
  int64_t mostPerExecution() const { return mostPerExecution_; }
  size_t mostSources() const { return mostSources_; }
  /// Returns whether ranks put into the scratch of others. A rank that only shows data in its own
  /// scratch need not know that the others have come before it begins.
  bool writesElsewhere() const { return writesElsewhere_; }
  /// Returns whether the plan is right only if all ranks share memory.
  bool needsSharedMemory() const { return needsSharedMemory_; }
  /// Returns whether a rank uses again what it has put into its output.
  bool readsOutput(int rank) const { return readsOutput_[rank]; }

 private:
  PlanAlgorithm(plan::Plan plan, bool mayBeWrong);

  plan::Plan plan_;
  std::optional<plan::Plan> direct_;
  std::optional<UserFunction> function_;
  plan::Properties properties_;
  uint64_t hash_;
  std::vector<std::vector<std::vector<Step>>> steps_;
  std::vector<int> counters_;
  std::vector<int64_t> perExecution_;
  int64_t mostPerExecution_ = 0;
  size_t mostSources_ = 1;
  bool writesElsewhere_ = false;
  bool needsSharedMemory_ = false;
  std::vector<bool> readsOutput_;
};

}  // namespace ctran
