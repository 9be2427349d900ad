#include "ctran/collective/all_reduce/shm.h"

#include "ctran/collective/shm_algorithms.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {

/// One step: everybody publishes its input and reduces all inputs, in rank order.
Task allReduceSlots(ShmContext& shm, const Collective& c) {
  return exchangeSlots(
      shm, kFromAll, [&c](std::byte* slot) { copyBlock(slot, c.input, c.blockBytes()); },
      [&c, &shm](const std::byte* const* slots) {
        reduceFn(c.op.kind, c.type)(c.output, slots, shm.size, c.count, shm.size);
      });
}

Task allReduceRounds(ShmContext& shm, const Collective& c) {
  return reduceInRounds(shm, c, kFromAll);
}

/// Reduce-scatter, then all-gather, piece by piece, two rounds each. In the first round a rank
/// publishes the parts of its piece that others reduce; it reduces its own part straight from the
/// others' buffers and its own input, in rank order, and publishes the result in the second round.
/// Per rank and byte of the tensor, with n ranks: 2 bytes written to shared memory at most, 2 read;
/// n reads in the reduction are spread over the ranks. While a piece is reduced the next one is
/// already being published.
Task reduceInRounds(ShmContext& shm, const Collective& c, int root) {
  const size_t element = sizeOf(c.type);
  const size_t share = shareBytes(c.blockBytes(), 1, element);
  const uint64_t pieces = roundsFor(c.blockBytes(), share);
  const uint64_t first = shm.firstRound();
  const bool collects = root == kFromAll || root == shm.rank;

  // Part r of piece k, as bytes within the piece.
  const auto partition = [&c, share, element](uint64_t k, int size) {
    return Partition(Piece(c.blockBytes(), share, k).bytes / element, size, element);
  };
  const auto publish = [&](uint64_t k) {
    const Piece piece(c.blockBytes(), share, k);
    const Partition parts = partition(k, shm.size);
    const size_t before = parts.begin(shm.rank) * element;
    const size_t after = parts.begin(shm.rank + 1) * element;
    std::byte* buffer = shm.buffer(first + 2 * k);
    copyBlock(buffer, c.input + piece.offset, before);
    copyBlock(buffer + after, c.input + piece.offset + after, piece.bytes - after);
    shm.fill(first + 2 * k + 1);
  };

  co_await shm.slotFree();
  shm.publishSlot();
  co_await shm.roundFree(first);
  publish(0);
  co_await shm.allArrived();
  for (int r = 0; r < shm.size; ++r) shm.slotOf(r);

  for (uint64_t k = 0; k < pieces; ++k) {
    const uint64_t scatter = first + 2 * k, gather = scatter + 1;
    const size_t offset = Piece(c.blockBytes(), share, k).offset;
    const Partition parts = partition(k, shm.size);

    co_await shm.allFilled(scatter);
    co_await shm.roundFree(gather);
    {
      const size_t mine = parts.begin(shm.rank) * element;
      const std::byte* sources[Arena::kMaxRanks];
      for (int r = 0; r < shm.size; ++r) sources[r] = shm.bufferOf(r, scatter) + mine;
      sources[shm.rank] = c.input + offset + mine;
      std::byte* result = shm.buffer(gather) + mine;
      reduceFn(c.op.kind, c.type)(result, sources, shm.size, parts.size(shm.rank), shm.size);
      if (collects) copyBlock(c.output + offset + mine, result, parts.size(shm.rank) * element);
    }
    shm.drain(scatter + 1);
    shm.fill(gather + 1);

    if (k + 1 < pieces) {
      co_await shm.roundFree(scatter + 2);
      publish(k + 1);
    }
    for (int step = 1; collects && step < shm.size; ++step) {
      const int peer = (shm.rank + step) % shm.size;
      co_await shm.filledBy(peer, gather);
      const size_t at = parts.begin(peer) * element;
      copyBlock(c.output + offset + at, shm.bufferOf(peer, gather) + at,
                parts.size(peer) * element);
    }
    shm.drain(gather + 1);
  }
  shm.endRounds(2 * pieces);
}

}  // namespace ctran
