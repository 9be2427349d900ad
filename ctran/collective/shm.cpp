#include "ctran/base/error.h"
#include "ctran/collective/alone.h"
#include "ctran/collective/shm_algorithms.h"

namespace ctran {
namespace {

/// In one step when it fits and when what is read by all is little.
bool fitsStep(size_t bytes, int readers) {
  return bytes <= Arena::kStepBytes && bytes * readers <= 64 * 1024;
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
      return barrierStep;
    case Kind::Broadcast:
      return fitsStep(block, 1) ? broadcastStep : broadcastRounds;
    case Kind::AllReduce:
      if (fitsStep(block, size)) return allReduceStep;
      return size == 2 ? allReduceDirect : allReduceTwoPhase;
    case Kind::Reduce:
      if (fitsStep(block, size)) return reduceStep;
      return size == 2 ? reduceDirect : reduceTwoPhase;
    case Kind::AllGather:
      return fitsStep(block, size) ? allGatherStep : allGatherRounds;
    case Kind::AllGatherV:
      return fitsStep(largestBytes(c.outputs, c.type), size) ? allGatherStep : allGatherRounds;
    case Kind::ReduceScatter:
      return fitsStep(all, 1) ? reduceScatterStep : reduceScatterRounds;
    case Kind::ReduceScatterV:
      return fitsStep(sumBytes(c.inputs, c.type), 1) ? reduceScatterStep : reduceScatterRounds;
    case Kind::Scatter:
      return fitsStep(all, 1) ? scatterStep : scatterRounds;
    case Kind::Gather:
      return fitsStep(block, size) ? gatherStep : gatherRounds;
    case Kind::AllToAll:
      return fitsStep(all, 1) ? allToAllStep : allToAllRounds;
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
