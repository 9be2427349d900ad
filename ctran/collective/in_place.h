#pragma once

#include "ctran/collective/collective.h"

namespace ctran {

/// Throws Error(InvalidArgument), which names both ranges, if the input overlaps the output and is
/// not in place. A call is in place if a block of the input is also the same block of the output:
///
///   kind                       | in place
///   ---------------------------|------------------------------------------------------
///   AllReduce, Reduce          | the input is the output
///   AllGather, Gather, V       | the input is this rank's block of the output
///   ReduceScatter, Scatter, V  | the output is this rank's block of the input
///   AllToAll, V                | block r of the input begins where block r of the output does
///   rows                       | never
///
/// Contiguous blocks cost two comparisons. Listed blocks are compared with the other side's block
/// or blocks once; if both sides are lists, each block is compared with that of its number, and
/// with all others if both lists are in the order of their addresses. `validate` calls this after
/// its other checks.
void checkInPlace(const Collective& collective, int rank, int size);

}  // namespace ctran
