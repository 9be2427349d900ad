#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ctran/plan/mscclpp/program.h"

namespace ctran::plan::mscclpp {

/// One signal, or one wait: a step of the plan, and what it comes from.
struct Use {
  LaneId lane;
  size_t step = 0;
  Origin origin;
};

/// A semaphore, or a connection, that several lanes signal or wait on, so that it is no channel.
struct Counter {
  std::string what;
  int credits = 0;  ///< signals that are there before the first
  std::vector<Use> signals, waits;
};

struct Counted {
  /// A wait that never ends, in a run in which others that are not ordered with it come first.
  std::optional<Use> stuck;
  std::vector<bool> contended;  ///< counters of which waits are not ordered
  /// A wait that others on the same counter are not ordered with: whose signals are whose depends
  /// on timing, and the plan has only what holds whatever it is.
  std::optional<Use> unordered;
};

/// Gives each wait the signals that must have come when it ends, as channels of their own.
///
/// Say that m signals are needed: one for it, and one for each wait that comes before it. Then
/// signal s must be among them if fewer than m can come without it: those that neither come after s
/// nor after the wait. What comes after what follows from the plan, and then from what was found
/// here, until nothing new is found.
Counted settleCounters(Plan& plan, const std::vector<Counter>& counters);

}  // namespace ctran::plan::mscclpp
