#include "ctran/collective/all_reduce/shm.h"
#include "ctran/collective/shm_algorithms.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {

/// One step: everybody publishes, the root reduces all inputs in rank order.
Task reduceSlots(ShmContext& shm, const Collective& c) {
  return exchangeSlots(
      shm, shm.rank == c.root ? kFromAll : kFromNobody,
      [&c](std::byte* slot) { copyBlock(slot, c.input, c.blockBytes()); },
      [&c, &shm](const std::byte* const* slots) {
        reduceFn(c.op.kind, c.type)(c.output, slots, shm.size, c.count, shm.size);
      });
}

/// As all-reduce, but the root alone collects the parts: all ranks share the arithmetic.
Task reduceRounds(ShmContext& shm, const Collective& c) { return reduceInRounds(shm, c, c.root); }

}  // namespace ctran
