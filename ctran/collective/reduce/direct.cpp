#include "ctran/collective/all_reduce/two_phase.h"
#include "ctran/collective/tcp_algorithms.h"

namespace ctran {

/// One step: everybody sends its input to the root.
Task reduceDirect(TcpContext& tcp, const Collective& c) { return reduceInOnePhase(tcp, c, c.root); }

/// As all-reduce, but the root alone collects the parts: all ranks share the arithmetic, and nobody
/// is sent more than twice the data.
Task reduceTwoPhase(TcpContext& tcp, const Collective& c) {
  return reduceInTwoPhases(tcp, c, c.root);
}

}  // namespace ctran
