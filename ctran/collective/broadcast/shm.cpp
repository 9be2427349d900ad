#include <span>
#include <utility>

#include "ctran/collective/shm_algorithms.h"
#include "ctran/collective/shm_exchange.h"

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
  const size_t bytes = c.blockBytes();
  const uint64_t pieces = roundsFor(bytes, kPiece);
  const auto partOf = [&shm, bytes](uint64_t k, int r) {
    const Piece piece(bytes, kPiece, k);
    const Partition parts(piece.bytes, shm.size, 1);
    return std::pair(piece.offset + parts.begin(r), parts.size(r));
  };

  shm.beginRounds(pieces, partBytes(std::min(bytes, kPiece), shm.size));
  co_await shm.slotFree();
  if (isRoot) {
    shm.lend(1, [&c](int) { return std::span(c.output, c.blockBytes()); });
  } else {
    shm.publishSlot();
  }
  co_await shm.allArrived();
  shm.checkAll();

  for (uint64_t k = 0, published = 0; k < pieces; ++k) {
    for (; published < std::min(k + 2, pieces); ++published) {
      co_await shm.roundFree(published);
      const auto [offset, size] = partOf(published, shm.rank);
      if (isRoot) {
        shm.put(shm.buffer(published), c.output + offset, size);
      } else if (!shm.read(c.root, {shm.lentBy(c.root, 0) + offset, shm.buffer(published), size})) {
        co_await shm.neverFilledBy(c.root);
      }
      shm.fillTo(published);
    }
    if (isRoot) {
      co_await shm.allFilled(k);
    } else {
      for (int step = 0; step < shm.size; ++step) {
        const int peer = (shm.rank + step) % shm.size;
        co_await shm.filledBy(peer, k);
        const auto [offset, size] = partOf(k, peer);
        shm.take(c.output + offset, shm.bufferOf(peer, k), size);
      }
    }
    shm.drainTo(k);
  }
  shm.endRounds();
  shm.throwIfFailed();
}

}  // namespace ctran
