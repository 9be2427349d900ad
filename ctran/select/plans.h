#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "ctran/collective/plan/algorithm.h"

namespace ctran {

/// Which calls a plan serves. All ranks have to say the same, before the same call: a call that is
/// served by different plans ends with Error(Mismatch).
struct PlanUse {
  std::string communicator;  ///< of that name; empty: of any
  size_t minBytes = 0;       ///< of a block, see Collective
  size_t maxBytes = std::numeric_limits<size_t>::max();
};

/// Makes a plan serve the calls that it can serve, instead of a native algorithm, in this process
/// from now on. Of several plans for a call the last one is taken. Returns a number to remove it
/// by. Throws Error(InvalidArgument) if the verifier rejects the plan, Error(Unsupported) if it
/// cannot be executed here. Any thread.
uint64_t registerPlan(const plan::Plan& plan, const PlanUse& use = {});

/// Calls that are under way go on with it. Whether it was there.
bool removePlan(uint64_t number);

/// What else a plan has to be able to do, as far as all ranks agree about it.
using PlanFilter = std::function<bool(const PlanAlgorithm&)>;

/// The plan that serves a call; none: a native algorithm does. Costs a few nanoseconds as long as
/// there are no plans.
std::shared_ptr<const PlanAlgorithm> choosePlan(const Collective& collective, int size,
                                                const std::string& communicator,
                                                const PlanFilter& filter = nullptr);

/// The plan of the library that does what an algorithm between hosts of that name does, for one
/// host of so many ranks; null if there is none.
std::shared_ptr<const PlanAlgorithm> libraryPlan(CollectiveKind kind, std::string_view name,
                                                 int size);

}  // namespace ctran
