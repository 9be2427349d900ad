#pragma once

#include "ctran/collective/algorithm.h"

namespace ctran {

/// Returns the algorithm that serves any collective of a single rank: the input, reduced or not,
/// becomes the output.
const Algorithm& aloneAlgorithm();

}  // namespace ctran
