#include "ctran/collective/shm_algorithms.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// At the start of every rank's slot. How much a rank sends is nobody else's knowledge, so the
/// slots tell: everybody reads everybody's and computes the same number of rounds.
struct Announcement {
  uint64_t largestBlock;              ///< elements; 0 when all blocks are in the slot, after this
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

void announce(const ShmContext& shm, const Collective& c, std::byte* slot) {
  Announcement announcement{};
  const bool small = sizeof announcement + inSlot(c) <= Arena::kSlotDataBytes;
  std::byte* data = slot + sizeof announcement;
  for (int r = 0; r < shm.size; ++r) {
    const Block& block = c.inputs[r];
    announcement.counts[r] = block.count;
    if (small) {
      copyBlock(data, block.data, block.count * sizeOf(c.type));
      data += block.count * sizeOf(c.type);
    } else {
      announcement.largestBlock = std::max<uint64_t>(announcement.largestBlock, block.count);
    }
  }
  std::memcpy(slot, &announcement, sizeof announcement);
}

/// The largest block that a peer sends in rounds; 0 if all it sends is in its slot.
uint64_t largestInRounds(const ShmContext& shm, const Collective& c, int peer,
                         const std::byte* slot) {
  Announcement announcement;
  std::memcpy(&announcement, slot, sizeof announcement);
  checkCount(shm, c, peer, announcement.counts[shm.rank]);
  return announcement.largestBlock;
}

void takeFromSlot(const ShmContext& shm, const Collective& c, int peer, const std::byte* slot) {
  Announcement announcement;
  std::memcpy(&announcement, slot, sizeof announcement);
  size_t offset = sizeof announcement;
  for (int r = 0; r < shm.rank; ++r) offset += announcement.counts[r] * sizeOf(c.type);
  copyBlock(c.outputs[peer].data, slot + offset, c.outputs[peer].count * sizeOf(c.type));
}

}  // namespace

/// Small: one step, as all_to_all. Large: the same step announces the counts; then rounds, as many
/// as the largest block of any rank takes. What came in slots is taken last, and a share of the
/// input is published before the same share of the output is written, so in place works.
Task allToAllV(ShmContext& shm, const Collective& c) {
  const size_t element = sizeOf(c.type);
  const uint64_t first = shm.firstRound();
  co_await shm.slotFree();
  announce(shm, c, shm.slotData());
  shm.publishSlot();
  co_await shm.allArrived();

  uint64_t largest = 0;
  uint64_t sendsInRounds = 0;  // bit per rank
  for (int r = 0; r < shm.size; ++r) {
    const uint64_t count = largestInRounds(shm, c, r, shm.slotOf(r));
    if (count > 0) sendsInRounds |= uint64_t{1} << r;
    largest = std::max(largest, count);
  }
  const auto sends = [sendsInRounds](int r) { return (sendsInRounds >> r & 1) != 0; };
  if (sends(shm.rank)) {
    copyBlock(c.outputs[shm.rank].data, c.inputs[shm.rank].data,
              c.inputs[shm.rank].count * element);
  }

  const size_t share = shareBytes(largest * element, shm.size, element);
  const uint64_t rounds = roundsFor(largest * element, share);
  for (uint64_t k = 0; k < rounds; ++k) {
    if (sends(shm.rank)) {
      co_await shm.roundFree(first + k);
      for (int r = 0; r < shm.size; ++r) {
        if (r == shm.rank) continue;
        const Piece piece(c.inputs[r].count * element, share, k);
        copyBlock(shm.buffer(first + k) + r * share, c.inputs[r].data + piece.offset, piece.bytes);
      }
    }
    shm.fill(first + k + 1);
    for (int step = 1; step < shm.size; ++step) {
      const int peer = (shm.rank + step) % shm.size;
      if (!sends(peer)) continue;
      co_await shm.filledBy(peer, first + k);
      const Piece piece(c.outputs[peer].count * element, share, k);
      copyBlock(c.outputs[peer].data + piece.offset,
                shm.bufferOf(peer, first + k) + shm.rank * share, piece.bytes);
    }
    shm.drain(first + k + 1);
  }
  for (int r = 0; r < shm.size; ++r) {
    if (!sends(r)) takeFromSlot(shm, c, r, shm.slotOf(r));
  }
  shm.endRounds(rounds);
}

}  // namespace ctran
