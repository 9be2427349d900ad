#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ctran/base/collective_kind.h"
#include "ctran/base/data_type.h"
#include "ctran/base/reduce_op.h"
#include "ctran/collective/row_exchange.h"
#include "ctran/transport/condition.h"

namespace ctran {

struct CallHints;
class PlanAlgorithm;
struct PersistentCopy;

/// As the peer of Recv and WaitSignal: the operation takes what any rank sends.
inline constexpr int kAnyRank = -1;

/// A block is `count` elements at `data`.
struct Block {
  std::byte* data = nullptr;
  size_t count = 0;
};

/// The description of one call, as one rank sees it. Which fields matter:
///
///   kind            | input                       | output                      | count
///   ----------------|-----------------------------|-----------------------------|------------------
///   Barrier         | -                           | -                           | -
///   Broadcast       | -                           | 1 block, read at root       | of the block
///   AllReduce       | 1 block                     | 1 block                     | of the block
///   Reduce          | 1 block                     | 1 block, at root only       | of the block
///   AllGather       | 1 block                     | one block per rank          | of one block
///   AllGatherV      | 1 block                     | one block per rank, listed  | of the input
///   ReduceScatter   | one block per rank          | 1 block                     | of one block
///   ReduceScatterV  | one block per rank, listed  | 1 block                     | of the output
///   Scatter         | one block per rank, at root | 1 block                     | of one block
///   Gather          | 1 block                     | one block per rank, at root | of one block
///   AllToAll        | one block per rank          | one block per rank          | of one block
///   AllToAllV       | one block per rank, listed  | one block per rank, listed  | -
///   Send            | 1 block                     | -                           | of the block
///   Recv            | -                           | 1 block                     | of the block
///   WaitSignal      | -                           | -                           | see below
///   AllToAllV-      | rows                        | rows, or one block of rows  | of a row
///     Dynamic       |                             |   per rank, listed          |
///   AllToAllV-      | rows                        | rows                        | of a row
///     Combine       |                             |                             |
///   Put, Get        | -                           | -                           | bytes
///   Flush           | -                           | -                           | -
///   Signal          | -                           | -                           | see below
///
/// The last four and WaitSignal describe what a window does; no communicator runs them. The count
/// of a signal is the number of the word that it sets + 1, or 0 if signals are counted. Their tag:
/// see windowTag.
///
/// Rows: see RowExchange; their input and output do not overlap.
///
/// "One block per rank" is contiguous (block r at `input + r * count` elements) unless listed in
/// `inputs`/`outputs`, which then hold one Block per rank. Input and output may be the same memory
/// block by block (in place); other overlap is an error of the caller. Buffers need no alignment.
struct Collective {
  CollectiveKind kind = CollectiveKind::Barrier;
  DataType type = DataType::UInt8;
  ReduceOp op;
  /// The root of the collective; for Send, Recv and windows the peer; for WaitSignal the rank it
  /// waits for.
  int root = 0;
  int tag = 0;  ///< for Send and Recv: a receive takes messages of its own tag only
  size_t count = 0;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::vector<Block> inputs;
  std::vector<Block> outputs;
  /// For Recv: is set to the sender's rank, if not null. Has to live as long as the buffer.
  int* source = nullptr;
  /// For Recv, set by the communicator: what has to hold before a message is taken, for each peer.
  std::vector<Condition> after;
  /// What the call asks for (preference.h); null if nothing.
  std::shared_ptr<const CallHints> hints;
  /// The plan that runs the call; null: a native algorithm. It is chosen when the call is made.
  std::shared_ptr<const PlanAlgorithm> plan;
  /// For AllGather and AllToAll on GPUs: where the outputs of all ranks are, if the ranks have
  /// agreed on that (exchange/persistent_copy.h).
  std::shared_ptr<const PersistentCopy> persistent;
  /// On several hosts: each rail (HostMap) runs the collective by itself. Ranks are then numbered
  /// as their hosts are, and an average is one over all ranks of the communicator. Every rank makes
  /// the call; ranks without a rail do nothing.
  bool onRail = false;
  /// The ranks make a communicator or a window of this communicator with this call.
  bool makesGroup = false;
  /// The ranks make what functions of the program run on with this call.
  bool startsFunctions = false;
  /// The rows that AllToAllVDynamic and AllToAllVCombine move.
  std::shared_ptr<const RowExchange> rows;

  size_t blockBytes() const { return count * sizeOf(type); }
  Block inputBlock(int rank) const {
    if (!inputs.empty()) return inputs[rank];
    return {const_cast<std::byte*>(input) + rank * blockBytes(), count};
  }
  Block outputBlock(int rank) const {
    if (!outputs.empty()) return outputs[rank];
    return {output + rank * blockBytes(), count};
  }

  /// Return the bytes of the largest block.
  size_t largestInput() const;
  size_t largestOutput() const;

  /// Describes the call for people: "all_reduce(sum, float32, 1024 elements)".
  std::string describe() const;
};

/// Throws Error(InvalidArgument) if the description is wrong for this rank and size.
void validate(const Collective& collective, int rank, int size);

/// Those of collectives whose blocks need not have one size. Throws Error(InvalidArgument) for what
/// is no collective.
size_t otherContributionBytes(const Collective& collective);

/// Returns the most bytes that a rank publishes in a collective: its block for all_reduce, reduce,
/// broadcast, gather and all_gather; all of its blocks for reduce_scatter, scatter and all_to_all.
/// It is the same on all ranks; 0 where they do not know it.
inline size_t contributionBytes(const Collective& collective, int size) {
  switch (collective.kind) {
    case CollectiveKind::Broadcast:
    case CollectiveKind::AllReduce:
    case CollectiveKind::Reduce:
    case CollectiveKind::AllGather:
    case CollectiveKind::Gather:
      return collective.blockBytes();
    case CollectiveKind::ReduceScatter:
    case CollectiveKind::Scatter:
    case CollectiveKind::AllToAll:
      return collective.blockBytes() * size;
    default:
      return otherContributionBytes(collective);
  }
}

inline bool isReduction(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce || kind == CollectiveKind::Reduce ||
         kind == CollectiveKind::ReduceScatter || kind == CollectiveKind::ReduceScatterV;
}
/// Returns whether a window does it.
inline bool isOfWindow(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::WaitSignal:
    case CollectiveKind::Put:
    case CollectiveKind::Get:
    case CollectiveKind::Flush:
    case CollectiveKind::Signal:
      return true;
    default:
      return false;
  }
}
/// Returns whether `root` is used, as it is by messages and windows, too, whose root is the peer.
inline bool hasRoot(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::Broadcast:
    case CollectiveKind::Reduce:
    case CollectiveKind::Scatter:
    case CollectiveKind::Gather:
    case CollectiveKind::Send:
    case CollectiveKind::Recv:
      return true;
    default:
      return isOfWindow(kind);
  }
}

/// Returns whether these are floats of 16 or 8 bits, whose sums are rounded once.
bool isSmallFloat(DataType type);

/// Returns whether sums of partial sums are as good as sums. They are not if each is rounded to few
/// digits.
bool toleratesPartialSums(DataType type, ReduceKind op);
inline bool toleratesPartialSums(const Collective& c) {
  return toleratesPartialSums(c.type, c.op.kind);
}

}  // namespace ctran
