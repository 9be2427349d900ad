#include "ctran/collective/shm_algorithms.h"
#include "ctran/collective/shm_exchange.h"
#include "ctran/collective/shm_reading.h"

namespace ctran {
namespace {

/// Whether an output overlaps the input of the same block, the only overlap that there may be, and
/// there is something at all.
bool inPlace(const Collective& c, int size) {
  for (int r = 0; r < size; ++r) {
    const std::byte *in = c.inputBlock(r).data, *out = c.outputBlock(r).data;
    if (in < out + c.blockBytes() && out < in + c.blockBytes()) return true;
  }
  return false;
}

}  // namespace

/// One step: everybody publishes all its blocks and copies its own from every slot.
Task allToAllStep(ShmContext& shm, const Collective& c) {
  return exchangeStep(
      shm, c.blockBytes() * shm.size, true, kFromAll,
      [&c, &shm](std::byte* slot) {
        for (int r = 0; r < shm.size; ++r) {
          if (r == shm.rank) continue;
          shm.put(slot + r * c.blockBytes(), c.inputBlock(r).data, c.blockBytes());
        }
      },
      [&c, &shm](int peer, const std::byte* slot) {
        const std::byte* from = slot + shm.rank * c.blockBytes();
        if (peer == shm.rank) from = c.inputBlock(peer).data;
        copyBlock(c.outputBlock(peer).data, from, c.blockBytes());
      });
}

/// Per round everybody publishes a share of each block; every byte is written and read once. A
/// share is published before the same share of the output is written, so in place works.
Task allToAllRounds(ShmContext& shm, const Collective& c) {
  const size_t share = shareBytes(c.blockBytes(), shm.size, sizeOf(c.type));
  shm.take(c.outputBlock(shm.rank).data, c.inputBlock(shm.rank).data, c.blockBytes());
  return exchangeRounds(
      shm, roundsFor(c.blockBytes(), share), share * shm.size, true, kFromAll,
      [&c, &shm, share](uint64_t k, std::byte* buffer) {
        const Piece piece(c.blockBytes(), share, k);
        for (int r = 0; r < shm.size; ++r) {
          if (r == shm.rank) continue;
          shm.put(buffer + r * share, c.inputBlock(r).data + piece.offset, piece.bytes);
        }
      },
      [&c, &shm, share](uint64_t k, int peer, const std::byte* buffer) {
        const Piece piece(c.blockBytes(), share, k);
        shm.take(c.outputBlock(peer).data + piece.offset, buffer + shm.rank * share, piece.bytes);
      });
}

/// Everybody reads its blocks out of the others' memory. Who exchanges in place lends a copy.
Task allToAllPull(ShmContext& shm, const Collective& c) {
  std::vector<std::byte> copy;
  if (inPlace(c, shm.size)) {
    copy.resize(c.blockBytes() * shm.size);
    for (int r = 0; r < shm.size; ++r) {
      copyBlock(copy.data() + r * c.blockBytes(), c.inputBlock(r).data, c.blockBytes());
    }
  }
  return exchangeByReading(
      shm, shm.size,
      [&c, copy = std::move(copy)](int r) {
        const std::byte* block = c.inputBlock(r).data;
        if (!copy.empty()) block = copy.data() + r * c.blockBytes();
        return std::span(block, c.blockBytes());
      },
      [&c, &shm] {
        shm.take(c.outputBlock(shm.rank).data, c.inputBlock(shm.rank).data, c.blockBytes());
      },
      [&c, &shm](int peer) {
        return Reading{shm.lentBy(peer, shm.rank), c.outputBlock(peer).data, c.blockBytes()};
      });
}

}  // namespace ctran
