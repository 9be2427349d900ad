#include "ctran/collective/all_reduce/shm/two_phase.h"

#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// Returns the fewest bytes of a round. In each round a rank looks twice at a counter of every
/// other rank, which takes as long as to read about half of what is to be read in it.
size_t fewestBytes(int size) {
  constexpr size_t kPartBytes = 8 << 10;
  return std::max(Arena::kStepBytes, std::bit_ceil(kPartBytes * size));
}

}  // namespace

/// Reduce-scatter, then all-gather, piece by piece, in one round each. A rank publishes the parts
/// of its piece that others reduce; it reduces its own part straight from the others' buffers and
/// its own input, in rank order, and publishes the result where that part would have been. Per rank
/// and byte of the tensor 1 byte is written to shared memory, 2 (size - 1) / size are read. While a
/// piece is reduced the next one is already being published.
Task reduceInTwoPhases(ShmContext& shm, const Collective& c, int root) {
  const size_t element = sizeOf(c.type);
  const size_t share = shareBytes(c.blockBytes(), 1, element, fewestBytes(shm.size));
  const uint64_t pieces = roundsFor(c.blockBytes(), share);
  const bool collects = root == kFromAll || root == shm.rank;

  // Part r of piece k, as elements within the piece.
  const auto partition = [&c, share, element](uint64_t k, int size) {
    return Partition(Piece(c.blockBytes(), share, k).bytes / element, size, element);
  };
  const auto publish = [&](uint64_t k) {
    const Piece piece(c.blockBytes(), share, k);
    const Partition parts = partition(k, shm.size);
    const size_t before = parts.begin(shm.rank) * element;
    const size_t after = parts.begin(shm.rank + 1) * element;
    std::byte* buffer = shm.buffer(k);
    shm.put(buffer, c.input + piece.offset, before);
    shm.put(buffer + after, c.input + piece.offset + after, piece.bytes - after);
    shm.halfFill(k);
  };

  shm.beginRounds(pieces, share);
  co_await shm.slotFree();
  shm.publishSlot();
  if (pieces > 0) {
    co_await shm.roundFree(0);
    publish(0);
  }
  co_await shm.allArrived();
  shm.checkAll();

  for (uint64_t k = 0; k < pieces; ++k) {
    const size_t offset = Piece(c.blockBytes(), share, k).offset;
    const Partition parts = partition(k, shm.size);

    // Of a few cache lines, some ranks have no part.
    if (parts.size(shm.rank) > 0) {
      co_await shm.allHalfFilled(k);
      const size_t mine = parts.begin(shm.rank) * element;
      const std::byte* sources[Arena::kMaxRanks];
      for (int r = 0; r < shm.size; ++r) sources[r] = shm.bufferOf(r, k) + mine;
      sources[shm.rank] = c.input + offset + mine;
      std::byte* published = shm.buffer(k) + mine;
      std::byte* result = collects ? c.output + offset + mine : published;
      shm.reduce(c, result, sources, parts.size(shm.rank));
      if (collects) shm.put(published, result, parts.size(shm.rank) * element);
    }
    shm.fillTo(k);

    if (k + 1 < pieces) {
      co_await shm.roundFree(k + 1);
      publish(k + 1);
    }
    for (int step = 1; collects && step < shm.size; ++step) {
      const int peer = (shm.rank + step) % shm.size;
      if (parts.size(peer) == 0) continue;
      co_await shm.filledBy(peer, k);
      const size_t at = parts.begin(peer) * element;
      shm.take(c.output + offset + at, shm.bufferOf(peer, k) + at, parts.size(peer) * element);
    }
    shm.drainTo(k);
  }
  shm.endRounds();
}

namespace {

Task allReduceTwoPhase(ShmContext& shm, const Collective& c) {
  return reduceInTwoPhases(shm, c, kFromAll);
}

}  // namespace

namespace algorithms {

Algorithm allReduceShmTwoPhase() {
  return {.name = "two_phase",
          .kinds = {CollectiveKind::AllReduce},
          .run = allReduceTwoPhase,
          .micros = twoPhaseMicros};
}

}  // namespace algorithms

}  // namespace ctran
