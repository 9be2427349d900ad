#include "ctran/collective/all_reduce/shm.h"
#include "ctran/collective/shm_algorithms.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {

/// One step: everybody publishes, the root reduces all inputs in rank order.
Task reduceStep(ShmContext& shm, const Collective& c) {
  return exchangeStep(
      shm, c.blockBytes(), true, shm.rank == c.root ? kFromAll : kFromNobody,
      [&c, &shm](std::byte* slot) { shm.put(slot, c.input, c.blockBytes()); },
      [&c, &shm](const std::byte* const* slots) {
        reduceFn(c.op.kind, c.type)(c.output, slots, shm.size, c.count, shm.size);
      });
}

/// As all-reduce, but the root alone reads.
Task reduceDirect(ShmContext& shm, const Collective& c) { return reduceDirect(shm, c, c.root); }

/// As all-reduce, but the root alone collects the parts: all ranks share the arithmetic.
Task reduceTwoPhase(ShmContext& shm, const Collective& c) {
  return reduceInTwoPhases(shm, c, c.root);
}

}  // namespace ctran
