#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// Per round every rank publishes a share of every other rank's block and reduces its own straight
/// from the others' buffers and its own input, in rank order.
Task reduceScatterRounds(ShmContext& shm, const Collective& c) {
  const size_t element = sizeOf(c.type);
  const size_t largest = c.largestInput();
  const size_t share = shareBytes(largest, shm.size, element);
  return exchangeRounds(
      shm, roundsFor(largest, share), share * shm.size, true, kFromAll,
      [&c, &shm, share, element](uint64_t k, std::byte* buffer) {
        for (int r = 0; r < shm.size; ++r) {
          if (r == shm.rank) continue;
          const Block block = c.inputBlock(r);
          const Piece piece(block.count * element, share, k);
          shm.put(buffer + r * share, block.data + piece.offset, piece.bytes);
        }
      },
      [&c, &shm, share, element](uint64_t k, const std::byte* const* buffers) {
        const Block block = c.inputBlock(shm.rank);
        const Piece piece(block.count * element, share, k);
        const std::byte* sources[Arena::kMaxRanks];
        for (int r = 0; r < shm.size; ++r) sources[r] = buffers[r] + shm.rank * share;
        sources[shm.rank] = block.data + piece.offset;
        shm.reduce(c, c.output + piece.offset, sources, piece.bytes / element);
      });
}

}  // namespace

namespace algorithms {

Algorithm reduceScatterShmRounds() {
  return {.name = "rounds",
          .kinds = {CollectiveKind::ReduceScatter, CollectiveKind::ReduceScatterV},
          .run = reduceScatterRounds,
          .micros = roundsMicros};
}

}  // namespace algorithms

}  // namespace ctran
