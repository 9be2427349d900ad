// Runs plans on numbers, in an order of steps that is as unkind as chance makes it: another judge
// of plans than the verifier, by other means.
#pragma once

#include <cstdint>
#include <string>

#include "ctran/plan/plan.h"

namespace ctran::plan {

/// Executes the plan `executions` times in a row. Lanes run in a random order, by priorities that
/// change now and then; what is put arrives late, though before later puts and signals of the same
/// lane to the same rank. Returns what went wrong; empty if all outputs are right.
std::string runUnkindly(const Plan& plan, int executions, uint64_t seed);

}  // namespace ctran::plan
