#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ctran/collective/collective.h"
#include "ctran/plan/plan.h"
#include "ctran/plan/verify.h"

namespace ctran {

/// A plan that has been verified and prepared to serve calls.
class PlanAlgorithm {
 public:
  /// Throws Error(InvalidArgument), with the findings, if the plan is not right, and
  /// Error(Unsupported) if shared memory cannot do it.
  explicit PlanAlgorithm(plan::Plan plan);
  /// The same of a plan in which ranks may reach buffers of each other's callers, which it stages
  /// (plan/staging.h).
  static std::shared_ptr<const PlanAlgorithm> staged(const plan::Plan& plan);

  const plan::Plan& plan() const { return plan_; }
  /// The plan that was staged, for those who do reach those buffers; null if nothing was.
  const plan::Plan* direct() const { return direct_ ? &*direct_ : nullptr; }
  const plan::Properties& properties() const { return properties_; }
  uint64_t hash() const { return hash_; }

  /// Why it cannot serve a call, as far as all ranks agree about it; empty if it can.
  std::string whyNot(const Collective& collective, int size) const;

  /// A signal of a channel, by its number in an execution, from 1; a wait for it.
  struct Signal {
    int channel;
    int64_t number;  ///< of a wait: less the credits, so it may be 0 or less
  };
  struct Step {
    std::vector<Signal> waits;
    std::vector<Signal> signals;
    bool completes = false;  ///< the reduction over all ranks: here an average divides
  };
  /// [rank][lane][step]
  const Step& step(plan::LaneId lane, size_t index) const {
    return steps_[lane.rank][lane.lane][index];
  }
  /// Which counter of the rank at which it starts a channel moves.
  int counter(int channel) const { return counters_[channel]; }
  /// Signals on the channel in each execution.
  int64_t perExecution(int channel) const { return perExecution_[channel]; }
  int64_t mostPerExecution() const { return mostPerExecution_; }
  size_t mostSources() const { return mostSources_; }
  /// Whether ranks put into scratch of others. Who only shows data in its own need not know that
  /// the others have come before it begins.
  bool writesElsewhere() const { return writesElsewhere_; }
  /// Whether it is right only where all ranks share memory.
  bool needsSharedMemory() const { return needsSharedMemory_; }
  /// Whether a rank has further use for what it has put into its output.
  bool readsOutput(int rank) const { return readsOutput_[rank]; }

 private:
  plan::Plan plan_;
  std::optional<plan::Plan> direct_;
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
