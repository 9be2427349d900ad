#include "ctran/collective/collective.h"

#include <algorithm>

#include "ctran/base/checked.h"
#include "ctran/base/error.h"
#include "ctran/collective/in_place.h"
#include "ctran/reduce/weighted_sum.h"

namespace ctran {
namespace {

[[noreturn]] void reject(const Collective& c, const std::string& why) {
  throw Error(ErrorKind::InvalidArgument, std::string(nameOf(c.kind)) + ": " + why, {},
              c.describe());
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

void checkList(const Collective& c, const char* name, const std::vector<Block>& blocks, int size,
               bool needed, bool alike) {
  if (blocks.empty() && !needed) return;
  if (blocks.size() != static_cast<size_t>(size)) {
    reject(c, std::string(name) + " must hold one block per rank, " + std::to_string(size) +
                  ", but holds " + std::to_string(blocks.size()));
  }
  for (const Block& block : blocks) {
    if (alike && block.count != c.count) {
      reject(c, std::string("all blocks of ") + name + " must have " + std::to_string(c.count) +
                    " elements");
    }
    if (block.count != 0 && block.data == nullptr) {
      reject(c, std::string("a block of ") + name + " is null");
    }
  }
}

void checkPointer(const Collective& c, const char* name, const std::byte* data,
                  const std::vector<Block>& blocks) {
  if (blocks.empty() && c.count != 0 && data == nullptr) {
    reject(c, std::string(name) + " is null");
  }
}

/// What a call names fits into an address space.
void checkBytes(const Collective& c, int size) {
  if (static_cast<int>(c.type) >= kDataTypeCount) reject(c, "there is no such data type");
  // This many elements fit any type and a million ranks. Most calls need no other check, and this
  // one takes no time.
  constexpr size_t kAlwaysFits = size_t{1} << 38;
  if (c.count <= kAlwaysFits && c.inputs.empty() && c.outputs.empty()) return;
  const auto fits = [&](Checked count) { return (count * sizeOf(c.type)).isAtMost(PTRDIFF_MAX); };
  bool all = fits(Checked(c.count) * static_cast<size_t>(size));
  for (const auto* blocks : {&c.inputs, &c.outputs}) {
    Checked sum = 0;
    for (const Block& block : *blocks) sum = sum + block.count;
    all &= fits(sum);
  }
  if (!all) reject(c, "no memory is as large as its counts say");
}

void checkRows(const Collective& c, int size) {
  if (c.rows == nullptr) reject(c, "rows are not described");
  const RowExchange& x = *c.rows;
  if (x.sendCounts == nullptr) reject(c, "counts are null");
  if (x.sendIndices == nullptr && x.indices != 0) reject(c, "indices are null");
  if (x.inputRows != 0) checkPointer(c, "input", c.input, {});
  if (c.outputs.empty() && x.outputRows != 0) checkPointer(c, "output", c.output, {});
  if (!c.outputs.empty()) checkList(c, "outputs", c.outputs, size, true, false);
  if (x.dedup && x.chunkRows != nullptr) reject(c, "chunks cannot be sent once per host");
  if (x.chunks != 0 && x.chunkRows == nullptr) reject(c, "the rows of the chunks are null");
  if (c.kind != CollectiveKind::AllToAllVCombine) return;
  if (x.received == nullptr) reject(c, "the counts of what is returned are null");
  if (x.chunkRows != nullptr || !c.outputs.empty()) reject(c, "rows return one by one");
  static_cast<void>(WeightedSum(c.type));
}

/// All but where input and output are.
void checkArguments(const Collective& c, int rank, int size) {
  using Kind = CollectiveKind;
  const auto rooted = [&] {
    if (c.root < 0 || c.root >= size) {
      reject(c, "rank " + std::to_string(c.root) + " is not in [0, " + std::to_string(size) + ")");
    }
    return c.root == rank;
  };
  checkBytes(c, size);
  const auto reduces = [&] {
    if (!isSupported(c.op.kind, c.type)) reject(c, whyUnsupported(c.op.kind, c.type));
  };
  switch (c.kind) {
    case Kind::Barrier:
      return;
    case Kind::Broadcast:
      rooted();
      return checkPointer(c, "the buffer", c.output, {});
    case Kind::AllReduce:
      reduces();
      checkPointer(c, "input", c.input, {});
      return checkPointer(c, "output", c.output, {});
    case Kind::Reduce:
      reduces();
      checkPointer(c, "input", c.input, {});
      if (rooted()) checkPointer(c, "output", c.output, {});
      return;
    case Kind::AllGather:
    case Kind::AllGatherV:
      checkPointer(c, "input", c.input, {});
      checkList(c, "outputs", c.outputs, size, c.kind == Kind::AllGatherV,
                c.kind == Kind::AllGather);
      if (!c.outputs.empty() && c.outputs[rank].count != c.count) {
        reject(c, "this rank's output block must be as large as its input");
      }
      return checkPointer(c, "output", c.output, c.outputs);
    case Kind::ReduceScatter:
    case Kind::ReduceScatterV:
      reduces();
      checkPointer(c, "output", c.output, {});
      checkList(c, "inputs", c.inputs, size, c.kind == Kind::ReduceScatterV,
                c.kind == Kind::ReduceScatter);
      if (!c.inputs.empty() && c.inputs[rank].count != c.count) {
        reject(c, "this rank's input block must be as large as its output");
      }
      return checkPointer(c, "input", c.input, c.inputs);
    case Kind::Scatter:
      checkPointer(c, "output", c.output, {});
      if (!rooted()) return;
      checkList(c, "inputs", c.inputs, size, false, true);
      return checkPointer(c, "input", c.input, c.inputs);
    case Kind::Gather:
      checkPointer(c, "input", c.input, {});
      if (!rooted()) return;
      checkList(c, "outputs", c.outputs, size, false, true);
      return checkPointer(c, "output", c.output, c.outputs);
    case Kind::AllToAll:
      checkList(c, "inputs", c.inputs, size, false, true);
      checkList(c, "outputs", c.outputs, size, false, true);
      checkPointer(c, "input", c.input, c.inputs);
      return checkPointer(c, "output", c.output, c.outputs);
    case Kind::AllToAllV:
      checkList(c, "inputs", c.inputs, size, true, false);
      return checkList(c, "outputs", c.outputs, size, true, false);
    case Kind::Send:
      rooted();
      return checkPointer(c, "input", c.input, {});
    case Kind::Recv:
      if (c.root != kAnyRank) rooted();
      return checkPointer(c, "output", c.output, {});
    case Kind::WaitSignal:  // a window checks its own
    case Kind::Put:
    case Kind::Get:
    case Kind::Flush:
    case Kind::Signal:
      return;
    case Kind::AllToAllVDynamic:
    case Kind::AllToAllVCombine:
      return checkRows(c, size);
  }
  reject(c, "no such operation");
}

}  // namespace

void validate(const Collective& c, int rank, int size) {
  checkArguments(c, rank, size);
  // On rails the ranks are those of hosts, and the buffers the engine's own.
  if (!c.onRail) checkInPlace(c, rank, size);
}

size_t Collective::largestInput() const {
  return inputs.empty() ? blockBytes() : largestBytes(inputs, type);
}

size_t Collective::largestOutput() const {
  return outputs.empty() ? blockBytes() : largestBytes(outputs, type);
}

size_t otherContributionBytes(const Collective& c) {
  switch (c.kind) {
    case CollectiveKind::Barrier:
    case CollectiveKind::AllToAllV:
      return 0;
    case CollectiveKind::AllGatherV:
      return largestBytes(c.outputs, c.type);
    case CollectiveKind::ReduceScatterV:
      return sumBytes(c.inputs, c.type);
    default:
      throw Error(ErrorKind::InvalidArgument, std::string(nameOf(c.kind)) + " is not a collective");
  }
}

bool isSmallFloat(DataType type) {
  return type == DataType::Float8E4M3 || type == DataType::Float8E5M2 ||
         type == DataType::Float16 || type == DataType::BFloat16;
}

bool toleratesPartialSums(DataType type, ReduceKind op) {
  return !isSmallFloat(type) || op == ReduceKind::Min || op == ReduceKind::Max;
}

}  // namespace ctran
