#pragma once

#include "ctran/collective/net_context.h"

namespace ctran {

/// Runs all-reduce or reduce in two steps: only `root` gets the result, or every rank does (-1).
Task reduceInTwoPhases(NetContext& net, const Collective& c, int root);

/// Runs it in one step: each rank that gets the result is sent the whole input of every rank.
Task reduceInOnePhase(NetContext& net, const Collective& c, int root);

}  // namespace ctran
