#include <span>

#include "ctran/collective/shm_algorithms.h"
#include "ctran/collective/shm_exchange.h"
#include "ctran/collective/shm_reading.h"

namespace ctran {

/// One step: the root publishes, all others copy.
Task broadcastStep(ShmContext& shm, const Collective& c) {
  const bool isRoot = shm.rank == c.root;
  return exchangeStep(
      shm, c.blockBytes(), isRoot, isRoot ? kFromNobody : c.root,
      [&c, &shm](std::byte* slot) { shm.put(slot, c.output, c.blockBytes()); },
      [&c](int, const std::byte* slot) { copyBlock(c.output, slot, c.blockBytes()); });
}

/// The root writes piece after piece into its buffers, up to a ring ahead of the
/// slowest reader. Every byte is written once and read by size - 1 ranks.
Task broadcastRounds(ShmContext& shm, const Collective& c) {
  const bool isRoot = shm.rank == c.root;
  const size_t bytes = c.blockBytes();
  const size_t share = shareBytes(bytes, 1, sizeOf(c.type));
  return exchangeRounds(
      shm, roundsFor(bytes, share), share, isRoot, isRoot ? kFromNobody : c.root,
      [&c, &shm, bytes, share](uint64_t k, std::byte* buffer) {
        const Piece piece(bytes, share, k);
        shm.put(buffer, c.output + piece.offset, piece.bytes);
      },
      [&c, &shm, bytes, share](uint64_t k, int, const std::byte* buffer) {
        const Piece piece(bytes, share, k);
        shm.take(c.output + piece.offset, buffer, piece.bytes);
      });
}

/// Every rank reads a part of each piece from the root's memory and passes it on through its ring:
/// the root writes 1 / size of every byte and is not read by all at once. A piece is read while the
/// one before is collected.
Task broadcastPull(ShmContext& shm, const Collective& c) {
  constexpr size_t kPiece = 512 << 10;
  const bool isRoot = shm.rank == c.root;
  const auto partOf = [&c, &shm](uint64_t k, int r) {
    const Piece piece(c.blockBytes(), kPiece, k);
    const Partition parts(piece.bytes, shm.size, 1);
    return std::span(c.output + piece.offset + parts.begin(r), parts.size(r));
  };
  return exchangeMadeByReading(
      shm, roundsFor(c.blockBytes(), kPiece), partBytes(std::min(c.blockBytes(), kPiece), shm.size),
      !isRoot,
      [&c, &shm, isRoot] {
        if (!isRoot) return shm.publishSlot();
        shm.lend(1, [&c](int) { return std::span(c.output, c.blockBytes()); });
      },
      [&c, &shm, isRoot, partOf](uint64_t k, std::byte* buffer) {
        const std::span<std::byte> mine = partOf(k, shm.rank);
        if (isRoot) {
          shm.put(buffer, mine.data(), mine.size());
          return -1;
        }
        const std::byte* from = shm.lentBy(c.root, 0) + (mine.data() - c.output);
        if (!shm.read(c.root, {from, buffer, mine.size()})) return c.root;
        shm.take(mine.data(), buffer, mine.size());
        return -1;
      },
      [&shm, partOf](uint64_t k, int peer, const std::byte* buffer) {
        const std::span<std::byte> part = partOf(k, peer);
        shm.take(part.data(), buffer, part.size());
      });
}

}  // namespace ctran
