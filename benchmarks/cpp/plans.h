#pragma once

#include <string>
#include <vector>

#include "benchmarks/cpp/sweep.h"

namespace bench {

/// Times plans of the library beside the native algorithm of the same collective, taking turns at
/// every size, so that noise hits all. With `shape`, only plans that do what the native algorithm
/// does.
bool sweepPlans(std::vector<Channel>& ranks, const SweepOptions& options, bool shape);

/// Before ranks begin: the native algorithms are to be those whose shape plans have, unless
/// CTRAN_ALGORITHM says otherwise.
void preferNativeShape(int ranks);

}  // namespace bench
