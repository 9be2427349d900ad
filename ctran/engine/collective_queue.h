#pragma once

#include <utility>

#include "ctran/collective/plan/algorithm.h"
#include "ctran/engine/operation_queue.h"
#include "ctran/select/selector.h"

namespace ctran {

class Communicator;

/// The collectives of a communicator.
class CollectiveQueue : public OperationQueue {
 public:
  CollectiveQueue(Core& core, Selector selector)
      : OperationQueue(core, Records::Collectives), selector(std::move(selector)) {}

  /// Waits until all ranks are here, and sees to it that they choose the same algorithms.
  /// Collective; before anything else. Throws Error.
  virtual void agree(Communicator& communicator, WaitHooks* hooks) = 0;

  /// Counts what goes between the ranks of this host. Before anything else.
  virtual void recordTraffic(Recording& recording) = 0;

  Selector selector;  ///< only while nothing runs

 protected:
  /// For `start`: a plan runs.
  void chosePlan(const PlanAlgorithm& plan) {
    if (core.recording == nullptr) return;
    if (plan.hash() != plan_) {
      planChoice_ =
          core.recording->choice("plan " + plan.plan().name, "a plan is registered for it");
      plan_ = plan.hash();
    }
    chose(planChoice_);
  }

 private:
  uint64_t plan_ = 0;  // the last one, and its choice
  uint32_t planChoice_ = 0;
};

}  // namespace ctran
