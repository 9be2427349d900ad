#pragma once

#include "ctran/collective/collective.h"

namespace ctran {

/// Throws Error(InvalidArgument), which names both ranges, where the input overlaps the output and
/// is not in place: a block of the input is a block of the output as well, the same one.
///
///   kind                       | in place
///   ---------------------------|------------------------------------------------------
///   AllReduce, Reduce          | the input is the output
///   AllGather, Gather, V       | the input is this rank's block of the output
///   ReduceScatter, Scatter, V  | the output is this rank's block of the input
///   AllToAll, V                | block r of the input begins where block r of the output does
///   rows                       | never
///
/// Contiguous blocks cost two comparisons. Listed ones are compared with the other side's block or
/// blocks once; of two lists, each block with that of its number, and with all others if both lists
/// are in the order of their addresses. The call has been checked otherwise.
void checkInPlace(const Collective& collective, int rank, int size);

}  // namespace ctran
