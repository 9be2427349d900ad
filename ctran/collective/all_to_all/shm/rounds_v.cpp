#include "ctran/base/checked.h"
#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// The start of every rank's contribution. Only the sender knows how much it sends, so the slots
/// say it: every rank reads all of them and computes the same number of rounds.
struct CountsAnnouncement {
  uint64_t largestBlock;              ///< elements; 0 when all blocks come at once, after this
  uint64_t counts[Arena::kMaxRanks];  ///< elements for each rank
};

void checkCount(const ShmContext& shm, const Collective& c, int peer, uint64_t sent) {
  const size_t expected = c.outputs[peer].count;
  if (sent == expected) return;
  const int from = shm.arena.nameOf(peer), to = shm.arena.nameOf(shm.rank);
  throw Error(ErrorKind::Mismatch,
              "all_to_all_v: rank " + std::to_string(from) + " sends " + std::to_string(sent) +
                  " elements to rank " + std::to_string(to) + ", which expects " +
                  std::to_string(expected),
              {from, to}, c.describe(),
              "input_split_sizes[j] on rank i must equal output_split_sizes[i] on rank j");
}

size_t inSlot(const Collective& c) {
  size_t bytes = 0;
  for (const Block& block : c.inputs) bytes += block.count * sizeOf(c.type);
  return bytes;
}

void announceCounts(const ShmContext& shm, const Collective& c, std::byte* slot) {
  CountsAnnouncement announcement{};
  const bool small = sizeof announcement + inSlot(c) <= Arena::kStepBytes;
  std::byte* data = slot + sizeof announcement;
  for (int r = 0; r < shm.size; ++r) {
    const Block& block = c.inputs[r];
    announcement.counts[r] = block.count;
    if (small) {
      shm.put(data, block.data, block.count * sizeOf(c.type));
      data += block.count * sizeOf(c.type);
    } else {
      announcement.largestBlock = std::max<uint64_t>(announcement.largestBlock, block.count);
    }
  }
  shm.put(slot, reinterpret_cast<const std::byte*>(&announcement), sizeof announcement);
}

/// The largest block that a peer sends in rounds; 0 if all it sends is in its slot.
uint64_t largestInRounds(const ShmContext& shm, const Collective& c, int peer,
                         const std::byte* slot) {
  CountsAnnouncement announcement;
  std::memcpy(&announcement, slot, sizeof announcement);
  checkCount(shm, c, peer, announcement.counts[shm.rank]);
  return announcement.largestBlock;
}

/// What is for this rank in a contribution that has all blocks.
const std::byte* blockIn(const ShmContext& shm, const Collective& c, int peer,
                         const std::byte* slot) {
  CountsAnnouncement announcement;
  std::memcpy(&announcement, slot, sizeof announcement);
  Checked offset = sizeof announcement;
  for (int r = 0; r < shm.rank; ++r)
    offset = offset + Checked(announcement.counts[r]) * sizeOf(c.type);
  const size_t own = c.outputs[peer].count * sizeOf(c.type);
  const size_t most = own <= Arena::kStepBytes ? Arena::kStepBytes - own : 0;
  return slot + offset.atMost(most, shm.arena.nameOf(peer), "bytes at once", c.describe());
}

/// Small: one step, as all_to_all. Large: the same step announces the counts; then rounds, as many
/// as the largest block of any rank takes. A share of the input is published before the same share
/// of the output is written, and what came at once is kept until all of it is, so in place works.
Task allToAllV(ShmContext& shm, const Collective& c) {
  const size_t element = sizeOf(c.type);
  shm.beginRounds(1, Arena::kStepBytes);
  co_await shm.slotFree();
  co_await shm.roundFree(0);
  announceCounts(shm, c, shm.buffer(0));
  shm.publishSlot();
  co_await shm.allArrived();
  shm.checkAll();

  uint64_t largest = 0;
  uint64_t sendsInRounds = 0;  // bit per rank
  for (int r = 0; r < shm.size; ++r) {
    const uint64_t count = largestInRounds(shm, c, r, shm.bufferOf(r, 0));
    if (count > 0) sendsInRounds |= uint64_t{1} << r;
    largest = std::max(largest, count);
  }
  const auto sends = [sendsInRounds](int r) { return (sendsInRounds >> r & 1) != 0; };
  if (sends(shm.rank)) {
    copyBlock(c.outputs[shm.rank].data, c.inputs[shm.rank].data,
              c.inputs[shm.rank].count * element);
  }

  std::vector<std::byte> kept;
  for (int r = 0; r < shm.size; ++r) {
    if (sends(r)) continue;
    const std::byte* block = blockIn(shm, c, r, shm.bufferOf(r, 0));
    const size_t bytes = c.outputs[r].count * element;
    if (sends(shm.rank)) {
      kept.insert(kept.end(), block, block + bytes);
      shm.countRead(block, bytes);
    } else {
      shm.take(c.outputs[r].data, block, bytes);
    }
  }
  shm.endRounds();
  if (largest == 0) co_return;

  const size_t share = shareBytes(largest * element, shm.size, element);
  const uint64_t rounds = roundsFor(largest * element, share);
  shm.beginRounds(rounds, share * shm.size);
  for (uint64_t k = 0; k < rounds; ++k) {
    if (sends(shm.rank)) {
      co_await shm.roundFree(k);
      for (int r = 0; r < shm.size; ++r) {
        if (r == shm.rank) continue;
        const Piece piece(c.inputs[r].count * element, share, k);
        shm.put(shm.buffer(k) + r * share, c.inputs[r].data + piece.offset, piece.bytes);
      }
    }
    shm.fillTo(k);
    for (int step = 1; step < shm.size; ++step) {
      const int peer = (shm.rank + step) % shm.size;
      if (!sends(peer)) continue;
      co_await shm.filledBy(peer, k);
      const Piece piece(c.outputs[peer].count * element, share, k);
      shm.take(c.outputs[peer].data + piece.offset, shm.bufferOf(peer, k) + shm.rank * share,
               piece.bytes);
    }
    shm.drainTo(k);
  }
  shm.endRounds();
  const std::byte* block = kept.data();
  for (int r = 0; sends(shm.rank) && r < shm.size; ++r) {
    if (sends(r)) continue;
    copyBlock(c.outputs[r].data, block, c.outputs[r].count * element);
    block += c.outputs[r].count * element;
  }
}

}  // namespace

namespace algorithms {

Algorithm allToAllShmRoundsV() {
  return {.name = "rounds",
          .kinds = {CollectiveKind::AllToAllV},
          .run = allToAllV,
          .micros = roundsMicros};
}

}  // namespace algorithms

}  // namespace ctran
