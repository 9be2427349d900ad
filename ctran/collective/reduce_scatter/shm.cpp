#include "ctran/collective/shm_algorithms.h"
#include "ctran/collective/shm_exchange.h"
#include "ctran/collective/shm_reading.h"

namespace ctran {
namespace {

size_t largestBlock(const Collective& c, int size) {
  size_t count = 0;
  for (int r = 0; r < size; ++r) count = std::max(count, c.inputBlock(r).count);
  return count * sizeOf(c.type);
}

size_t allBytes(const Collective& c, int size) {
  size_t count = 0;
  for (int r = 0; r < size; ++r) count += c.inputBlock(r).count;
  return count * sizeOf(c.type);
}

}  // namespace

// Both serve reduce_scatter and reduce_scatter_v: only the blocks' sizes differ.

/// One step: everybody publishes all its blocks, one after another, and reduces its own block from
/// all slots in rank order.
Task reduceScatterStep(ShmContext& shm, const Collective& c) {
  return exchangeStep(
      shm, allBytes(c, shm.size), true, kFromAll,
      [&c, &shm](std::byte* slot) {
        for (int r = 0; r < shm.size; ++r) {
          const Block block = c.inputBlock(r);
          if (r != shm.rank) shm.put(slot, block.data, block.count * sizeOf(c.type));
          slot += block.count * sizeOf(c.type);
        }
      },
      [&c, &shm](const std::byte* const* slots) {
        size_t offset = 0;
        for (int r = 0; r < shm.rank; ++r) offset += c.inputBlock(r).count * sizeOf(c.type);
        const std::byte* sources[Arena::kMaxRanks];
        for (int r = 0; r < shm.size; ++r) sources[r] = slots[r] + offset;
        sources[shm.rank] = c.inputBlock(shm.rank).data;
        reduceFn(c.op.kind, c.type)(c.output, sources, shm.size, c.inputBlock(shm.rank).count,
                                    shm.size);
      });
}

/// Per round everybody publishes a share of every other rank's block and reduces its own straight
/// from the others' buffers and its own input, in rank order.
Task reduceScatterRounds(ShmContext& shm, const Collective& c) {
  const size_t element = sizeOf(c.type);
  const size_t largest = largestBlock(c, shm.size);
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
        reduceFn(c.op.kind, c.type)(c.output + piece.offset, sources, shm.size,
                                    piece.bytes / element, shm.size);
      });
}

/// Everybody reads its block of all others out of their memory, piece by piece, and reduces.
Task reduceScatterPull(ShmContext& shm, const Collective& c) {
  return exchangeByReadingAll(
      shm, shm.size,
      [&c](int r) {
        const Block block = c.inputBlock(r);
        return std::span<const std::byte>(block.data, block.count * sizeOf(c.type));
      },
      [&c, &shm] {
        const std::byte* from[Arena::kMaxRanks];
        for (int r = 0; r < shm.size; ++r) from[r] = shm.lentBy(r, shm.rank);
        return shm.reduceByReading(c, c.output, from, c.inputBlock(shm.rank).count);
      });
}

}  // namespace ctran
