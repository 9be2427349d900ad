#include <span>

#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"
#include "ctran/collective/shm_reading.h"

namespace ctran {
namespace {

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

/// Each reads its part from the root, who is one for all, and then the parts of all from the rings.
double broadcastPullMicros(const AlgorithmQuery& q) {
  constexpr double kReadRoot = 1 / 20e3, kLook = 0.75;
  const auto bytes = static_cast<double>(q.bytes);
  return 2 * startMicros(q.size) + kLook * lookIntoAllMicros(q.size) + bytes * kReadRoot +
         inRoundsMicros({0, bytes, 0}, q.size, 0);
}

}  // namespace

namespace algorithms {

Algorithm broadcastShmPull() {
  return {.name = "pull",
          .kinds = {CollectiveKind::Broadcast},
          .run = broadcastPull,
          .micros = broadcastPullMicros,
          .readsPeers = true};
}

}  // namespace algorithms

}  // namespace ctran
