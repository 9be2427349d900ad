#pragma once

#include "ctran/plan/plan.h"

namespace ctran::plan {

/// The same plan, but a rank ends only when all lanes of all ranks have come to their ends, so that
/// nobody reaches the memory of a rank that has ended, whatever is wrong with the plan. It takes a
/// signal from each rank to each other.
Plan fenced(const Plan& plan);

}  // namespace ctran::plan
