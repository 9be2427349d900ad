#pragma once

#include <bit>

#include "ctran/collective/collective.h"
#include "ctran/reduce/reduce.h"

namespace ctran {

/// Returns the reduction of some contributions that are to be reduced with others: for an average,
/// the sum.
inline ReduceFn partialFn(const Collective& c) {
  return reduceFn(c.op.kind == ReduceKind::Avg ? ReduceKind::Sum : c.op.kind, c.type);
}

/// Returns the largest power of two up to `size`. In halving algorithms, a rank r beyond it gives
/// its data to rank r - core, and gets the result from there.
inline int coreOf(int size) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
}

}  // namespace ctran
