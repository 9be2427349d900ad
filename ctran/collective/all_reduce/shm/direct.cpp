#include "ctran/collective/all_reduce/shm/two_phase.h"

#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {

/// Every rank publishes its input, piece by piece, and reduces all inputs in rank order, its own
/// from where it is. Per rank and byte of the tensor 1 byte is written to shared memory and size -
/// 1 are read: for two ranks as little as in two phases, without their second step.
Task reduceDirectly(ShmContext& shm, const Collective& c, int root) {
  const bool reads = root == kFromAll || root == shm.rank;
  const size_t element = sizeOf(c.type);
  const size_t share = shareBytes(c.blockBytes(), 1, element);
  return exchangeRounds(
      shm, roundsFor(c.blockBytes(), share), share, root != shm.rank,
      reads ? kFromAll : kFromNobody,
      [&c, &shm, share](uint64_t k, std::byte* buffer) {
        const Piece piece(c.blockBytes(), share, k);
        shm.put(buffer, c.input + piece.offset, piece.bytes);
      },
      [&c, &shm, share, element](uint64_t k, const std::byte* const* buffers) {
        const Piece piece(c.blockBytes(), share, k);
        const std::byte* sources[Arena::kMaxRanks];
        for (int r = 0; r < shm.size; ++r) sources[r] = buffers[r];
        sources[shm.rank] = c.input + piece.offset;
        shm.reduce(c, c.output + piece.offset, sources, piece.bytes / element);
      });
}

namespace {

Task allReduceDirect(ShmContext& shm, const Collective& c) {
  return reduceDirectly(shm, c, kFromAll);
}

}  // namespace

namespace algorithms {

Algorithm allReduceShmDirect() {
  return {.name = "direct",
          .kinds = {CollectiveKind::AllReduce},
          .run = allReduceDirect,
          .micros = roundsMicros};
}

}  // namespace algorithms

}  // namespace ctran
