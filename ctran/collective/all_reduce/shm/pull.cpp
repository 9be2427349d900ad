#include <span>

#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"
#include "ctran/collective/shm_reading.h"

namespace ctran {
namespace {

/// A rank reduces its part of the tensor, read from the memory of all others, and publishes the
/// result in its ring, from where all copy it: a piece after another, as large as rounds for the
/// parts of all allow, and one round ahead. Per rank and byte of the tensor (size - 1) / size are
/// read from the others' inputs, 1 / size is written to shared memory, and (size - 1) / size are
/// read there, still in caches. In place a rank overwrites of its input only what nobody else reads
/// and parts whose results it has got.
Task allReducePull(ShmContext& shm, const Collective& c) {
  const size_t most = Arena::kRoundBytes * shm.size;  // of a piece
  const auto partOf = [&c, &shm, most](uint64_t k, int r) {
    const Piece piece(c.blockBytes(), most, k);
    const Partition parts(piece.bytes / sizeOf(c.type), shm.size, sizeOf(c.type));
    return std::span(c.output + piece.offset + parts.begin(r) * sizeOf(c.type),
                     parts.size(r) * sizeOf(c.type));
  };
  return exchangeMadeByReading(
      shm, roundsFor(c.blockBytes(), most), partBytes(std::min(c.blockBytes(), most), shm.size),
      true, [&c, &shm] { shm.lend(1, [&c](int) { return std::span(c.input, c.blockBytes()); }); },
      [&c, &shm, partOf](uint64_t k, std::byte* buffer) {
        const std::span<std::byte> mine = partOf(k, shm.rank);
        const std::byte* from[Arena::kMaxRanks];
        for (int r = 0; r < shm.size; ++r) from[r] = shm.lentBy(r, 0) + (mine.data() - c.output);
        const int gone = shm.reduceByReading(c, mine.data(), from, mine.size() / sizeOf(c.type));
        shm.put(buffer, mine.data(), mine.size());
        return gone;
      },
      [&shm, partOf](uint64_t k, int peer, const std::byte* buffer) {
        const std::span<std::byte> part = partOf(k, peer);
        shm.take(part.data(), buffer, part.size());
      });
}

/// A rank reads its part from each other one, and then the results of all from the rings.
double allReducePullMicros(const AlgorithmQuery& q) {
  const double part = static_cast<double>(q.bytes) / q.size;
  return pullMicros({CollectiveKind::ReduceScatter, q.bytes, q.size}) +
         inRoundsMicros({part, part * (q.size - 1), 0}, q.size, 0);
}

}  // namespace

namespace algorithms {

Algorithm allReduceShmPull() {
  return {.name = "pull",
          .kinds = {CollectiveKind::AllReduce},
          .run = allReducePull,
          .micros = allReducePullMicros,
          .readsPeers = true};
}

}  // namespace algorithms

}  // namespace ctran
