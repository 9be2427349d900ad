#include <algorithm>

#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

void copyOwn(const ShmContext& shm, const Collective& c, const Piece& piece) {
  const std::byte* own = c.inputBlock(shm.rank).data;
  shm.take(c.output + piece.offset, own + piece.offset, piece.bytes);
}

/// The root writes a share of every rank's block per round, and copies one of its own while the
/// others read theirs; every byte is written and read once.
Task scatterRounds(ShmContext& shm, const Collective& c) {
  const bool isRoot = shm.rank == c.root;
  const size_t share = shareBytes(c.blockBytes(), shm.size, sizeOf(c.type));
  const uint64_t rounds = roundsFor(c.blockBytes(), share);
  return exchangeRounds(
      shm, rounds, share * shm.size, isRoot, isRoot ? kFromNobody : c.root,
      [&c, &shm, share, rounds](uint64_t k, std::byte* buffer) {
        if (k > 0) copyOwn(shm, c, Piece(c.blockBytes(), share, k - 1));
        const Piece piece(c.blockBytes(), share, k);
        if (k + 1 == rounds) copyOwn(shm, c, piece);
        for (int r = 0; r < shm.size; ++r) {
          if (r == shm.rank) continue;
          shm.put(buffer + r * share, c.inputBlock(r).data + piece.offset, piece.bytes);
        }
      },
      [&c, &shm, share](uint64_t k, int, const std::byte* buffer) {
        const Piece piece(c.blockBytes(), share, k);
        shm.take(c.output + piece.offset, buffer + shm.rank * share, piece.bytes);
      });
}

/// The root, who writes everything, waits for cache lines that all others have read.
double scatterRoundsMicros(const AlgorithmQuery& q) {
  return roundsMicros(q) * (1 + std::min(q.size, 8) / 16.0);
}

}  // namespace

namespace algorithms {

Algorithm scatterShmRounds() {
  return {.name = "rounds",
          .kinds = {CollectiveKind::Scatter},
          .run = scatterRounds,
          .micros = scatterRoundsMicros};
}

}  // namespace algorithms

}  // namespace ctran
