#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"
#include "ctran/collective/shm_reading.h"

namespace ctran {
namespace {

/// Returns whether an output overlaps the input of the same block, which is the only overlap that
/// there may be, and the block is not empty.
bool inPlace(const Collective& c, int size) {
  for (int r = 0; r < size; ++r) {
    const std::byte *in = c.inputBlock(r).data, *out = c.outputBlock(r).data;
    if (in < out + c.blockBytes() && out < in + c.blockBytes()) return true;
  }
  return false;
}

/// Every rank reads its blocks out of the others' memory. A rank that exchanges in place lends a
/// copy.
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

}  // namespace

namespace algorithms {

Algorithm allToAllShmPull() {
  return {.name = "pull",
          .kinds = {CollectiveKind::AllToAll},
          .run = allToAllPull,
          .micros = pullMicros,
          .whyNot = whyNoAddresses,
          .readsPeers = true};
}

}  // namespace algorithms

}  // namespace ctran
