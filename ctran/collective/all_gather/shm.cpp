#include "ctran/collective/shm_algorithms.h"
#include "ctran/collective/shm_exchange.h"
#include "ctran/collective/shm_reading.h"

namespace ctran {
namespace {

size_t largestBlock(const Collective& c) {
  if (c.outputs.empty()) return c.blockBytes();
  size_t count = 0;
  for (const Block& block : c.outputs) count = std::max(count, block.count);
  return count * sizeOf(c.type);
}

}  // namespace

// Both serve all_gather and all_gather_v: only the blocks' sizes differ.

/// One step: everybody publishes its block and copies all others'.
Task allGatherStep(ShmContext& shm, const Collective& c) {
  return exchangeStep(
      shm, largestBlock(c), true, kFromAll,
      [&c, &shm](std::byte* slot) { shm.put(slot, c.input, c.blockBytes()); },
      [&c, &shm](int peer, const std::byte* slot) {
        const Block block = c.outputBlock(peer);
        copyBlock(block.data, peer == shm.rank ? c.input : slot, block.count * sizeOf(c.type));
      });
}

/// Everybody reads all others' blocks out of their memory.
Task allGatherPull(ShmContext& shm, const Collective& c) {
  return exchangeByReading(
      shm, 1, [&c](int) { return std::span(c.input, c.blockBytes()); },
      [&c, &shm] { shm.take(c.outputBlock(shm.rank).data, c.input, c.blockBytes()); },
      [&c, &shm](int peer) {
        const Block block = c.outputBlock(peer);
        return Reading{shm.lentBy(peer, 0), block.data, block.count * sizeOf(c.type)};
      });
}

/// Everybody writes its block once, piece by piece, and reads the size - 1 others', starting with
/// its neighbour so that no two ranks read the same block at the same time.
Task allGatherRounds(ShmContext& shm, const Collective& c) {
  const size_t share = shareBytes(largestBlock(c), 1, sizeOf(c.type));
  return exchangeRounds(
      shm, roundsFor(largestBlock(c), share), share, true, kFromAll,
      [&c, &shm, share](uint64_t k, std::byte* buffer) {
        const Piece piece(c.blockBytes(), share, k);
        shm.put(buffer, c.input + piece.offset, piece.bytes);
        shm.take(c.outputBlock(shm.rank).data + piece.offset, c.input + piece.offset, piece.bytes);
      },
      [&c, &shm, share](uint64_t k, int peer, const std::byte* buffer) {
        const Block block = c.outputBlock(peer);
        const Piece piece(block.count * sizeOf(c.type), share, k);
        shm.take(block.data + piece.offset, buffer, piece.bytes);
      });
}

}  // namespace ctran
