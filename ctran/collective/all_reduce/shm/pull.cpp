#include "ctran/collective/all_reduce/shm/pull.h"

#include <span>

#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"
#include "ctran/collective/shm_reading.h"

namespace ctran {

/// A rank reduces its part of the tensor, read from the memory of all others, and publishes the
/// result in its ring, from where those who collect copy it: a piece after another, as large as
/// rounds for the parts of all allow, and one round ahead. Per rank and byte of the tensor
/// (size - 1) / size are read from the others' inputs, 1 / size is written to shared memory, and
/// (size - 1) / size are read there, still in caches. In place a rank overwrites of its input only
/// what nobody else reads and parts whose results it has got.
Task reduceByPulling(ShmContext& shm, const Collective& c, int root) {
  const bool isForAll = root == kFromAll, collects = isForAll || root == shm.rank;
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
      collects,
      [&c, &shm] { shm.lend(1, [&c](int) { return std::span(c.input, c.blockBytes()); }); },
      [&c, &shm, partOf, element, isForAll, collects](uint64_t k, std::byte* buffer) {
        const Part mine = partOf(k, shm.rank);
        const std::byte* from[Arena::kMaxRanks];
        for (int r = 0; r < shm.size; ++r) from[r] = shm.lentBy(r, 0) + mine.offset;
        std::byte* const result = collects ? c.output + mine.offset : buffer;
        const int gone = shm.reduceByReading(c, result, from, mine.count);
        if (isForAll) shm.put(buffer, result, mine.count * element);
        return gone;
      },
      [&c, &shm, partOf, element](uint64_t k, int peer, const std::byte* buffer) {
        const Part part = partOf(k, peer);
        shm.take(c.output + part.offset, buffer, part.count * element);
      });
}

/// A rank reads its part from each other one, and then the results of all from the rings. Two ranks
/// have little to gain: half of the tensor goes through the rings as well.
double reduceByPullingMicros(const AlgorithmQuery& q) {
  const double part = static_cast<double>(q.bytes) / q.size;
  const double extra = q.size == 2 ? 1.4 : 1;
  return extra * (pullMicros({CollectiveKind::ReduceScatter, q.bytes, q.size}) +
                  inRoundsMicros({part, part * (q.size - 1), 0}, q.size, 0));
}

namespace {

Task allReducePull(ShmContext& shm, const Collective& c) {
  return reduceByPulling(shm, c, kFromAll);
}

}  // namespace

namespace algorithms {

Algorithm allReduceShmPull() {
  return {.name = "pull",
          .kinds = {CollectiveKind::AllReduce},
          .run = allReducePull,
          .micros = reduceByPullingMicros,
          .readsPeers = true};
}

}  // namespace algorithms

}  // namespace ctran
