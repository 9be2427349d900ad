#pragma once

#include "ctran/collective/net_context.h"

namespace ctran {

/// All-reduce and reduce in two steps: `root` alone gets the result, or everybody (-1).
Task reduceInTwoPhases(NetContext& net, const Collective& c, int root);

/// In one step: whoever gets the result is sent the whole input of everybody.
Task reduceInOnePhase(NetContext& net, const Collective& c, int root);

}  // namespace ctran
