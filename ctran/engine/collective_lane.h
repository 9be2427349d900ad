#pragma once

#include <utility>

#include "ctran/engine/lane.h"
#include "ctran/select/selector.h"

namespace ctran {

class Communicator;

/// The collectives of a communicator.
class CollectiveLane : public Lane {
 public:
  CollectiveLane(Core& core, Selector selector) : Lane(core), selector(std::move(selector)) {}

  /// Waits until all ranks are here, and sees to it that they choose the same algorithms.
  /// Collective; before anything else. Throws Error.
  virtual void agree(Communicator& communicator, WaitHooks* hooks) = 0;

  Selector selector;  ///< only while nothing runs
};

}  // namespace ctran
