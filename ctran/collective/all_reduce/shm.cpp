#include "ctran/collective/all_reduce/shm.h"

#include <span>

#include "ctran/collective/shm_algorithms.h"
#include "ctran/collective/shm_exchange.h"
#include "ctran/collective/shm_reading.h"

namespace ctran {

/// One step: everybody publishes its input and reduces all inputs, in rank order.
Task allReduceStep(ShmContext& shm, const Collective& c) {
  return exchangeStep(
      shm, c.blockBytes(), true, kFromAll,
      [&c, &shm](std::byte* slot) { shm.put(slot, c.input, c.blockBytes()); },
      [&c, &shm](const std::byte* const* slots) {
        const std::byte* sources[Arena::kMaxRanks];
        for (int r = 0; r < shm.size; ++r) sources[r] = r == shm.rank ? c.input : slots[r];
        reduceFn(c.op.kind, c.type)(c.output, sources, shm.size, c.count, shm.size);
      });
}

Task allReduceDirect(ShmContext& shm, const Collective& c) {
  return reduceDirect(shm, c, kFromAll);
}
Task allReduceTwoPhase(ShmContext& shm, const Collective& c) {
  return reduceInTwoPhases(shm, c, kFromAll);
}

/// Everybody publishes its input, piece by piece, and reduces all inputs in rank order, its own
/// from where it is. Per rank and byte of the tensor 1 byte is written to shared memory and size -
/// 1 are read: for two ranks as little as in two phases, without their second step.
Task reduceDirect(ShmContext& shm, const Collective& c, int root) {
  const bool reads = root == kFromAll || root == shm.rank;
  const size_t element = sizeOf(c.type);
  const size_t share = shareBytes(c.blockBytes(), 1, element);
  return exchangeRounds(
      shm, roundsFor(c.blockBytes(), share), share, root != shm.rank,
      reads ? kFromAll : kFromNobody,
      [&c, &shm, share](uint64_t k, std::byte* buffer) {
        const Piece piece(c.blockBytes(), share, k);
        shm.put(buffer, c.input + piece.offset, piece.bytes);
      },
      [&c, &shm, share, element](uint64_t k, const std::byte* const* buffers) {
        const Piece piece(c.blockBytes(), share, k);
        const std::byte* sources[Arena::kMaxRanks];
        for (int r = 0; r < shm.size; ++r) sources[r] = buffers[r];
        sources[shm.rank] = c.input + piece.offset;
        shm.reduce(c, c.output + piece.offset, sources, piece.bytes / element);
      });
}

/// Reduce-scatter, then all-gather, piece by piece, in one round each. A rank publishes the parts
/// of its piece that others reduce; it reduces its own part straight from the others' buffers and
/// its own input, in rank order, and publishes the result where that part would have been. Per rank
/// and byte of the tensor 1 byte is written to shared memory, 2 (size - 1) / size are read. While a
/// piece is reduced the next one is already being published.
Task reduceInTwoPhases(ShmContext& shm, const Collective& c, int root) {
  const size_t element = sizeOf(c.type);
  const size_t share = shareBytes(c.blockBytes(), 1, element);
  const uint64_t pieces = roundsFor(c.blockBytes(), share);
  const bool collects = root == kFromAll || root == shm.rank;

  // Part r of piece k, as elements within the piece.
  const auto partition = [&c, share, element](uint64_t k, int size) {
    return Partition(Piece(c.blockBytes(), share, k).bytes / element, size, element);
  };
  const auto publish = [&](uint64_t k) {
    const Piece piece(c.blockBytes(), share, k);
    const Partition parts = partition(k, shm.size);
    const size_t before = parts.begin(shm.rank) * element;
    const size_t after = parts.begin(shm.rank + 1) * element;
    std::byte* buffer = shm.buffer(k);
    shm.put(buffer, c.input + piece.offset, before);
    shm.put(buffer + after, c.input + piece.offset + after, piece.bytes - after);
    shm.halfFill(k);
  };

  shm.beginRounds(pieces, share);
  co_await shm.slotFree();
  shm.publishSlot();
  if (pieces > 0) {
    co_await shm.roundFree(0);
    publish(0);
  }
  co_await shm.allArrived();
  shm.checkAll();

  for (uint64_t k = 0; k < pieces; ++k) {
    const size_t offset = Piece(c.blockBytes(), share, k).offset;
    const Partition parts = partition(k, shm.size);

    co_await shm.allHalfFilled(k);
    {
      const size_t mine = parts.begin(shm.rank) * element;
      const std::byte* sources[Arena::kMaxRanks];
      for (int r = 0; r < shm.size; ++r) sources[r] = shm.bufferOf(r, k) + mine;
      sources[shm.rank] = c.input + offset + mine;
      std::byte* published = shm.buffer(k) + mine;
      std::byte* result = collects ? c.output + offset + mine : published;
      reduceFn(c.op.kind, c.type)(result, sources, shm.size, parts.size(shm.rank), shm.size);
      if (collects) shm.put(published, result, parts.size(shm.rank) * element);
    }
    shm.fillTo(k);

    if (k + 1 < pieces) {
      co_await shm.roundFree(k + 1);
      publish(k + 1);
    }
    for (int step = 1; collects && step < shm.size; ++step) {
      const int peer = (shm.rank + step) % shm.size;
      co_await shm.filledBy(peer, k);
      const size_t at = parts.begin(peer) * element;
      shm.take(c.output + offset + at, shm.bufferOf(peer, k) + at, parts.size(peer) * element);
    }
    shm.drainTo(k);
  }
  shm.endRounds();
}

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

}  // namespace ctran
