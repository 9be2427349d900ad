#pragma once

#include <bit>

#include "ctran/collective/collective.h"
#include "ctran/reduce/reduce.h"

namespace ctran {

/// The reduction of some contributions that are to be reduced with others: of an average, the sum.
inline ReduceFn partialFn(const Collective& c) {
  return reduceFn(c.op.kind == ReduceKind::Avg ? ReduceKind::Sum : c.op.kind, c.type);
}

/// The largest power of two up to `size`. In algorithms of halves, the ranks beyond it give what
/// they have to the rank so many before theirs, and get the result from there.
inline int coreOf(int size) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
}

}  // namespace ctran
