#pragma once

#include "ctran/collective/algorithm.h"

namespace ctran {

/// What serves any collective of a single rank: its input, reduced or not, becomes its output.
const Algorithm& aloneAlgorithm();

}  // namespace ctran
