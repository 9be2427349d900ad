#pragma once

#include <utility>

#include "ctran/collective/plan/algorithm.h"
#include "ctran/engine/function_group.h"
#include "ctran/engine/operation_queue.h"
#include "ctran/select/selector.h"

namespace ctran {

class Communicator;

/// The queue of a communicator's collectives.
class CollectiveQueue : public OperationQueue {
 public:
  CollectiveQueue(Core& core, Selector selector)
      : OperationQueue(core, Records::Collectives), selector(std::move(selector)) {}

  /// Waits until all ranks are here, and makes them choose the same algorithms. Collective; called
  /// before anything else. Throws Error.
  virtual void agree(Communicator& communicator, WaitHooks* hooks) = 0;

  /// Records the bytes that go between the ranks of this host. Called before anything else.
  virtual void recordTraffic(Recording& recording) = 0;

  Selector selector;                    ///< may be changed only while nothing runs
  FunctionRunner* functions = nullptr;  ///< set before the first call that one serves

 protected:
  /// `start` calls this when a plan runs.
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
  uint64_t plan_ = 0;  // hash of the last plan, and its choice
  uint32_t planChoice_ = 0;
};

}  // namespace ctran
