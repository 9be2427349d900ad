#include "ctran/transport/shm/arena.h"

#include <algorithm>
#include <bit>

namespace ctran {
namespace {

/// 64 MB over all pairs, and as much for envelopes, so that the address space stays small: 1 MB
/// each up to 8 ranks.
size_t channelCapacityFor(int size) {
  const size_t pairs = static_cast<size_t>(size) * size;
  return std::clamp<size_t>(std::bit_floor((size_t{64} << 20) / pairs), 64 << 10, 1 << 20);
}

}  // namespace

size_t Arena::bytesFor(int size) {
  const size_t perRank = kSlots * kSlotBytes + kRingBytes + kSignalsBytes;
  const size_t channels =
      static_cast<size_t>(size) * size * (sizeof(Channel) + 2 * channelCapacityFor(size));
  const size_t total = Board::bytesFor(size) + size * perRank + channels;
  return (total + 4095) / 4096 * 4096;
}

Arena::Arena(std::shared_ptr<SharedMapping> memory, int rank, int size, const int* names)
    : Board(std::move(memory), rank, size, true),
      names_(names),
      slots_(Board::bytesFor(size)),
      rings_(slots_ + size * kSlots * kSlotBytes),
      signals_(rings_ + size * kRingBytes),
      channels_(signals_ + size * kSignalsBytes),
      channelCapacity_(channelCapacityFor(size)) {}

}  // namespace ctran
