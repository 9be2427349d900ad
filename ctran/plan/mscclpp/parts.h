#pragma once

#include "ctran/plan/plan.h"

namespace ctran::plan::mscclpp {

/// Fills in which part of a block each step moves: that of a user's buffer, or what was written to
/// scratch.
void settleParts(Plan& plan);

}  // namespace ctran::plan::mscclpp
