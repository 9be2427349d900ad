#pragma once

#include <string_view>

#include "ctran/plan/simulate.h"

namespace ctran::plan {

/// How long an all-reduce plan of the library takes, by formula: for more ranks than one would
/// simulate. In seconds, for data of `bytes` bytes in one unit; 0 bytes tell the start-up. The
/// machine's faults do not count. The formulas follow the critical path of the plan, step by step;
/// tests compare them with the simulator.
///
/// Throws Error(InvalidArgument) for other plans than all_reduce.ring, all_reduce.halving_doubling
/// (powers of two), all_reduce.two_shot and all_reduce.hierarchical, of the machine's hosts.
double estimate(std::string_view name, int ranks, const Machine& machine, double bytes);

}  // namespace ctran::plan
