#include <span>

#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"
#include "ctran/collective/shm_reading.h"

namespace ctran {
namespace {

/// A rank reduces its part of the tensor, read from the memory of all others, into its ring, from
/// where the root copies it: a piece after another, one round ahead. In place the root overwrites
/// of its input only its own part, which nobody else reads, and parts whose results it has got.
Task reducePull(ShmContext& shm, const Collective& c) {
  const bool isRoot = shm.rank == c.root;
  const size_t element = sizeOf(c.type);
  const size_t most = Arena::kRoundBytes * shm.size;  // of a piece
  struct Part {
    size_t offset, count;
  };
  const auto partOf = [&c, &shm, most, element](uint64_t k, int r) {
    const Piece piece(c.blockBytes(), most, k);
    const Partition parts(piece.bytes / element, shm.size, element);
    return Part{piece.offset + parts.begin(r) * element, parts.size(r)};
  };
  return exchangeMadeByReading(
      shm, roundsFor(c.blockBytes(), most), partBytes(std::min(c.blockBytes(), most), shm.size),
      isRoot, [&c, &shm] { shm.lend(1, [&c](int) { return std::span(c.input, c.blockBytes()); }); },
      [&c, &shm, partOf, isRoot](uint64_t k, std::byte* buffer) {
        const Part mine = partOf(k, shm.rank);
        const std::byte* from[Arena::kMaxRanks];
        for (int r = 0; r < shm.size; ++r) from[r] = shm.lentBy(r, 0) + mine.offset;
        return shm.reduceByReading(c, isRoot ? c.output + mine.offset : buffer, from, mine.count);
      },
      [&c, &shm, partOf, element](uint64_t k, int peer, const std::byte* buffer) {
        const Part part = partOf(k, peer);
        shm.take(c.output + part.offset, buffer, part.count * element);
      });
}

/// A rank reads its part from each other one, and then the root the results of all from the rings.
double reducePullMicros(const AlgorithmQuery& q) {
  const double part = static_cast<double>(q.bytes) / q.size;
  return pullMicros({CollectiveKind::ReduceScatter, q.bytes, q.size}) +
         inRoundsMicros({part, part * (q.size - 1), 0}, q.size, 0);
}

}  // namespace

namespace algorithms {

Algorithm reduceShmPull() {
  return {.name = "pull",
          .kinds = {CollectiveKind::Reduce},
          .run = reducePull,
          .micros = reducePullMicros,
          .readsPeers = true};
}

}  // namespace algorithms

}  // namespace ctran
