#pragma once

#include <vector>

#include "benchmarks/cpp/sweep.h"

namespace bench {

/// Times every operation at every size while the ranks record their operations and while they do
/// not, in turns, so that noise hits both; prints the medians, the fastest turns, and the median of
/// the differences between neighbouring turns. Returns whether all went well.
bool sweepRecorder(std::vector<Channel>& ranks, const SweepOptions& options);

}  // namespace bench
