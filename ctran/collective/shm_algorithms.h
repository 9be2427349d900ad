#pragma once

#include "ctran/collective/shm_context.h"

namespace ctran {

/// The native algorithms of one host. "Step" are for data that goes in one step; the others
/// for any size. Each is described where it is defined, in the folder of its collective.
using ShmAlgorithm = Task (*)(ShmContext&, const Collective&);

Task barrierStep(ShmContext&, const Collective&);
Task broadcastStep(ShmContext&, const Collective&);
Task broadcastRounds(ShmContext&, const Collective&);
Task allReduceStep(ShmContext&, const Collective&);
Task allReduceDirect(ShmContext&, const Collective&);
Task allReduceTwoPhase(ShmContext&, const Collective&);
Task reduceStep(ShmContext&, const Collective&);
Task reduceDirect(ShmContext&, const Collective&);
Task reduceTwoPhase(ShmContext&, const Collective&);
Task allGatherStep(ShmContext&, const Collective&);
Task allGatherRounds(ShmContext&, const Collective&);
Task reduceScatterStep(ShmContext&, const Collective&);
Task reduceScatterRounds(ShmContext&, const Collective&);
Task scatterStep(ShmContext&, const Collective&);
Task scatterRounds(ShmContext&, const Collective&);
Task gatherStep(ShmContext&, const Collective&);
Task gatherRounds(ShmContext&, const Collective&);
Task allToAllStep(ShmContext&, const Collective&);
Task allToAllRounds(ShmContext&, const Collective&);
Task allToAllV(ShmContext&, const Collective&);

/// The algorithm for a collective: a function of its agreed fields and the size alone, so that all
/// ranks choose alike.
ShmAlgorithm chooseShmAlgorithm(const Collective& collective, int size);

}  // namespace ctran
