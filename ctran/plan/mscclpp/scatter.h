#pragma once

#include "ctran/plan/plan.h"

namespace ctran::plan::mscclpp {

/// Of steps that write to a rank's input, its own block is its output from then on. Does nothing,
/// and returns false, where that does not do: other blocks are written, several lanes use a chunk
/// that is written, or a step reads old and new chunks together.
bool divideOwnBlock(Plan& plan, int rank);

/// Whatever is in the rank's input is in scratch instead, from chunk `first` on.
void replaceInput(Plan& plan, int rank, int first);

}  // namespace ctran::plan::mscclpp
