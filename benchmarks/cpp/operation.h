#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>

namespace bench {

/// What is timed. Send and Recv are the two halves of SendRecv, a ping-pong between ranks 0 and 1.
enum class Op {
  AllReduce,
  AllGather,
  ReduceScatter,
  Broadcast,
  AllToAll,
  Barrier,
  Reduce,
  Gather,
  Scatter,
  SendRecv,
  Copy,
  Send,
  Recv,
};

/// One call of one rank: float32, sums, root 0.
struct Call {
  Op op;
  size_t count;        ///< elements of one block
  const float* input;  ///< Shape::inputBlocks blocks
  float* output;       ///< Shape::outputBlocks blocks; of Broadcast the root's source too
  int peer = 0;        ///< of Send and Recv
};

struct OpInfo {
  Op op;
  std::string_view name;
  bool inputPerRank;   ///< the input is one block per rank, else one block
  bool outputPerRank;  ///< the output, likewise
};

/// In the order in which a sweep runs them.
inline constexpr OpInfo kOps[] = {
    {Op::AllReduce, "all_reduce", false, false},
    {Op::AllGather, "all_gather", false, true},
    {Op::ReduceScatter, "reduce_scatter", true, false},
    {Op::Broadcast, "broadcast", false, false},
    {Op::AllToAll, "all_to_all", true, true},
    {Op::Barrier, "barrier", false, false},
    {Op::Reduce, "reduce", false, false},
    {Op::Gather, "gather", false, true},
    {Op::Scatter, "scatter", true, false},
    {Op::SendRecv, "send_recv", false, false},
    {Op::Copy, "copy", false, false},
};

inline const OpInfo& info(Op op) {
  return *std::find_if(std::begin(kOps), std::end(kOps), [&](auto& i) { return i.op == op; });
}

inline std::optional<Op> parseOp(std::string_view name) {
  for (const OpInfo& info : kOps) {
    if (info.name == name) return info.op;
  }
  return std::nullopt;
}

/// Buffers of one call. `bytes` of a sweep are the full, world-sized buffer: what every rank holds
/// of all_reduce, broadcast, reduce and send_recv; what is gathered, scattered or exchanged in
/// total by the others, whose blocks are a world-th of it, at least one element.
struct Shape {
  size_t count;
  size_t inputBlocks;
  size_t outputBlocks;

  Shape(Op op, size_t bytes, int ranks) {
    const OpInfo& of = info(op);
    inputBlocks = of.inputPerRank ? ranks : 1;
    outputBlocks = of.outputPerRank ? ranks : 1;
    count = std::max<size_t>(1, bytes / sizeof(float) / std::max(inputBlocks, outputBlocks));
  }
};

/// Element i of the input of a rank: small integers, so that float sums are exact in any order.
inline float inputElement(int rank, size_t i) { return float((rank * 31 + i * 7) % 61); }

/// Element i of the output of `rank` after a call, nothing if the call leaves it alone.
inline std::optional<float> expectedElement(Op op, int rank, int ranks, size_t count, size_t i) {
  const auto sum = [&](size_t at) {
    float total = 0;
    for (int r = 0; r < ranks; ++r) total += inputElement(r, at);
    return total;
  };
  switch (op) {
    case Op::AllReduce:
      return sum(i);
    case Op::Reduce:
      return rank == 0 ? std::optional(sum(i)) : std::nullopt;
    case Op::ReduceScatter:
      return sum(rank * count + i);
    case Op::AllGather:
      return inputElement(int(i / count), i % count);
    case Op::Gather:
      return rank == 0 ? std::optional(inputElement(int(i / count), i % count)) : std::nullopt;
    case Op::AllToAll:
      return inputElement(int(i / count), rank * count + i % count);
    case Op::Broadcast:
      return inputElement(0, i);
    case Op::Scatter:
      return inputElement(0, rank * count + i);
    case Op::SendRecv:
      return rank < 2 ? std::optional(inputElement(1 - rank, i)) : std::nullopt;
    case Op::Copy:
      return inputElement(rank, i);
    default:
      return std::nullopt;
  }
}

}  // namespace bench
