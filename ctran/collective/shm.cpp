#include "ctran/base/error.h"
#include "ctran/collective/alone.h"
#include "ctran/collective/shm_algorithms.h"

namespace ctran {
namespace {

/// In a slot when it fits and when size - 1 slots are read faster than rounds are set up.
bool fitsSlot(size_t bytes, int readers) {
  return bytes <= Arena::kSlotDataBytes && bytes * readers <= 64 * 1024;
}

size_t sumBytes(const std::vector<Block>& blocks, DataType type) {
  size_t count = 0;
  for (const Block& block : blocks) count += block.count;
  return count * sizeOf(type);
}

size_t largestBytes(const std::vector<Block>& blocks, DataType type) {
  size_t count = 0;
  for (const Block& block : blocks) count = std::max(count, block.count);
  return count * sizeOf(type);
}

}  // namespace

ShmAlgorithm chooseShmAlgorithm(const Collective& c, int size) {
  using Kind = CollectiveKind;
  if (size == 1) return copyAlone;
  const size_t block = c.blockBytes();
  const size_t all = block * size;
  switch (c.kind) {
    case Kind::Barrier:
      return barrierSlots;
    case Kind::Broadcast:
      return fitsSlot(block, 1) ? broadcastSlots : broadcastRounds;
    case Kind::AllReduce:
      return fitsSlot(block, size) ? allReduceSlots : allReduceRounds;
    case Kind::Reduce:
      return fitsSlot(block, size) ? reduceSlots : reduceRounds;
    case Kind::AllGather:
      return fitsSlot(block, size) ? allGatherSlots : allGatherRounds;
    case Kind::AllGatherV:
      return fitsSlot(largestBytes(c.outputs, c.type), size) ? allGatherSlots : allGatherRounds;
    case Kind::ReduceScatter:
      return fitsSlot(all, 1) ? reduceScatterSlots : reduceScatterRounds;
    case Kind::ReduceScatterV:
      return fitsSlot(sumBytes(c.inputs, c.type), 1) ? reduceScatterSlots : reduceScatterRounds;
    case Kind::Scatter:
      return fitsSlot(all, 1) ? scatterSlots : scatterRounds;
    case Kind::Gather:
      return fitsSlot(block, size) ? gatherSlots : gatherRounds;
    case Kind::AllToAll:
      return fitsSlot(all, 1) ? allToAllSlots : allToAllRounds;
    case Kind::AllToAllV:
      return allToAllV;
    case Kind::Send:
    case Kind::Recv:
    case Kind::WaitSignal:
      break;
  }
  throw Error(ErrorKind::InvalidArgument, std::string(nameOf(c.kind)) + " is not a collective");
}

}  // namespace ctran
