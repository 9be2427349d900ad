#include "ctran/collective/all_reduce/net/two_phase.h"
#include "ctran/collective/net_algorithms.h"

namespace ctran {

/// One step: everybody sends its input to the root.
Task reduceDirect(NetContext& net, const Collective& c) { return reduceInOnePhase(net, c, c.root); }

/// As all-reduce, but the root alone collects the parts: all ranks share the arithmetic, and nobody
/// is sent more than twice the data.
Task reduceTwoPhase(NetContext& net, const Collective& c) {
  return reduceInTwoPhases(net, c, c.root);
}

}  // namespace ctran
