#pragma once

#include "ctran/collective/shm_context.h"

namespace ctran {

/// The native algorithms of one host. "Slots" are for data that fits a slot, one step; "Rounds" for
/// any size. Each is described where it is defined, in the folder of its collective.
using ShmAlgorithm = Task (*)(ShmContext&, const Collective&);

Task barrierSlots(ShmContext&, const Collective&);
Task broadcastSlots(ShmContext&, const Collective&);
Task broadcastRounds(ShmContext&, const Collective&);
Task allReduceSlots(ShmContext&, const Collective&);
Task allReduceRounds(ShmContext&, const Collective&);
Task reduceSlots(ShmContext&, const Collective&);
Task reduceRounds(ShmContext&, const Collective&);
Task allGatherSlots(ShmContext&, const Collective&);
Task allGatherRounds(ShmContext&, const Collective&);
Task reduceScatterSlots(ShmContext&, const Collective&);
Task reduceScatterRounds(ShmContext&, const Collective&);
Task scatterSlots(ShmContext&, const Collective&);
Task scatterRounds(ShmContext&, const Collective&);
Task gatherSlots(ShmContext&, const Collective&);
Task gatherRounds(ShmContext&, const Collective&);
Task allToAllSlots(ShmContext&, const Collective&);
Task allToAllRounds(ShmContext&, const Collective&);
Task allToAllV(ShmContext&, const Collective&);

/// The algorithm for a collective: a function of its agreed fields and the size alone, so that all
/// ranks choose alike.
ShmAlgorithm chooseShmAlgorithm(const Collective& collective, int size);

}  // namespace ctran
