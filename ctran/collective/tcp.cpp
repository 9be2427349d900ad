#include <algorithm>
#include <iterator>

#include "ctran/base/error.h"
#include "ctran/collective/tcp_algorithms.h"

namespace ctran {
namespace {

using Kind = CollectiveKind;

struct Named {
  Kind kind;
  std::string_view name;
  TcpAlgorithm algorithm;
  bool sumsPartially = false;  ///< passes on partial sums
};

constexpr Named kAlgorithms[] = {
    {Kind::Barrier, "dissemination", barrierDissemination},
    {Kind::Broadcast, "binomial", broadcastBinomial},
    {Kind::Broadcast, "direct", broadcastDirect},
    {Kind::Broadcast, "scatter_all_gather", broadcastScatterAllGather},
    {Kind::AllReduce, "direct", allReduceDirect},
    {Kind::AllReduce, "two_phase", allReduceTwoPhase},
    {Kind::AllReduce, "ring", allReduceRing, true},
    {Kind::AllReduce, "halving_doubling", allReduceHalvingDoubling, true},
    {Kind::Reduce, "direct", reduceDirect},
    {Kind::Reduce, "two_phase", reduceTwoPhase},
    {Kind::Reduce, "binomial", reduceBinomial, true},
    {Kind::AllGather, "direct", allGatherDirect},
    {Kind::AllGather, "ring", allGatherRing},
    {Kind::AllGather, "recursive_doubling", allGatherRecursiveDoubling},
    {Kind::AllGather, "bruck", allGatherBruck},
    {Kind::AllGatherV, "direct", allGatherDirect},
    {Kind::AllGatherV, "ring", allGatherRing},
    {Kind::AllGatherV, "recursive_doubling", allGatherRecursiveDoubling},
    {Kind::AllGatherV, "bruck", allGatherBruck},
    {Kind::ReduceScatter, "direct", reduceScatterDirect},
    {Kind::ReduceScatter, "ring", reduceScatterRing, true},
    {Kind::ReduceScatter, "recursive_halving", reduceScatterRecursiveHalving, true},
    {Kind::ReduceScatterV, "direct", reduceScatterDirect},
    {Kind::ReduceScatterV, "ring", reduceScatterRing, true},
    {Kind::ReduceScatterV, "recursive_halving", reduceScatterRecursiveHalving, true},
    {Kind::Scatter, "direct", scatterDirect},
    {Kind::Scatter, "binomial", scatterBinomial},
    {Kind::Gather, "direct", gatherDirect},
    {Kind::Gather, "binomial", gatherBinomial},
    {Kind::AllToAll, "direct", allToAllDirect},
    {Kind::AllToAll, "pairwise", allToAllPairwise},
    {Kind::AllToAll, "bruck", allToAllBruck},
    {Kind::AllToAllV, "direct", allToAllVDirect},
    {Kind::AllToAllV, "pairwise", allToAllVPairwise},
};

constexpr int kAnyRanks = INT32_MAX;
constexpr size_t kAnyBytes = SIZE_MAX;
/// Up to so many bytes, over all that a rank sends, one step costs less than two.
constexpr size_t kFew = 64 << 10;
constexpr size_t kMany = 4 << 20;
/// With more ranks a connection of each to each costs more than steps do.
constexpr int kDirectRanks = 32;

/// What is taken unless somebody prefers another: the first row that fits. `bytes`: what a rank
/// sends if it sends everything that others need straight to them.
struct Default {
  Kind kind;
  int ranks;
  size_t bytes;
  std::string_view name;
};

constexpr Default kDefaults[] = {
    {Kind::Barrier, kAnyRanks, kAnyBytes, "dissemination"},
    {Kind::Broadcast, 4, kAnyBytes, "binomial"},
    {Kind::Broadcast, kAnyRanks, kMany, "binomial"},
    {Kind::Broadcast, kDirectRanks, kAnyBytes, "scatter_all_gather"},
    {Kind::Broadcast, kAnyRanks, kAnyBytes, "binomial"},
    {Kind::AllReduce, kAnyRanks, kFew, "direct"},
    {Kind::AllReduce, kDirectRanks, kAnyBytes, "two_phase"},
    {Kind::AllReduce, kAnyRanks, kMany, "halving_doubling"},
    {Kind::AllReduce, kAnyRanks, kAnyBytes, "ring"},
    {Kind::AllReduce, kAnyRanks, kAnyBytes, "two_phase"},
    {Kind::Reduce, kAnyRanks, kFew, "direct"},
    {Kind::Reduce, kAnyRanks, kAnyBytes, "two_phase"},
    {Kind::AllGather, kDirectRanks, kAnyBytes, "direct"},
    {Kind::AllGather, kAnyRanks, kMany, "bruck"},
    {Kind::AllGather, kAnyRanks, kAnyBytes, "ring"},
    {Kind::AllGatherV, kDirectRanks, kAnyBytes, "direct"},
    {Kind::AllGatherV, kAnyRanks, kMany, "bruck"},
    {Kind::AllGatherV, kAnyRanks, kAnyBytes, "ring"},
    {Kind::ReduceScatter, kDirectRanks, kAnyBytes, "direct"},
    {Kind::ReduceScatter, kAnyRanks, kMany, "recursive_halving"},
    {Kind::ReduceScatter, kAnyRanks, kAnyBytes, "direct"},
    {Kind::ReduceScatterV, kDirectRanks, kAnyBytes, "direct"},
    {Kind::ReduceScatterV, kAnyRanks, kMany, "recursive_halving"},
    {Kind::ReduceScatterV, kAnyRanks, kAnyBytes, "direct"},
    {Kind::Scatter, kDirectRanks, kAnyBytes, "direct"},
    {Kind::Scatter, kAnyRanks, kMany, "binomial"},
    {Kind::Scatter, kAnyRanks, kAnyBytes, "direct"},
    {Kind::Gather, kDirectRanks, kAnyBytes, "direct"},
    {Kind::Gather, kAnyRanks, kMany, "binomial"},
    {Kind::Gather, kAnyRanks, kAnyBytes, "direct"},
    {Kind::AllToAll, kDirectRanks, kAnyBytes, "direct"},
    {Kind::AllToAll, kAnyRanks, kFew, "bruck"},
    {Kind::AllToAll, kAnyRanks, kAnyBytes, "pairwise"},
    {Kind::AllToAllV, kDirectRanks, kAnyBytes, "direct"},
    {Kind::AllToAllV, kAnyRanks, kAnyBytes, "pairwise"},
};

const Named* find(Kind kind, std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms),
                   [&](const Named& named) { return named.kind == kind && named.name == name; });
  return found == std::end(kAlgorithms) ? nullptr : found;
}

size_t sumBytes(const Collective& c, const std::vector<Block>& blocks) {
  size_t count = 0;
  for (const Block& block : blocks) count += block.count;
  return count * sizeOf(c.type);
}

/// From what all ranks agree on alone.
size_t directBytes(const Collective& c, int size) {
  if (c.kind == Kind::AllGatherV) return sumBytes(c, c.outputs);
  if (c.kind == Kind::ReduceScatterV) return sumBytes(c, c.inputs);
  if (c.kind == Kind::AllToAllV) return kAnyBytes;
  return c.blockBytes() * (size - 1);
}

}  // namespace

bool toleratesPartialSums(const Collective& c) {
  const bool small = c.type == DataType::Float8E4M3 || c.type == DataType::Float8E5M2 ||
                     c.type == DataType::Float16 || c.type == DataType::BFloat16;
  return !small || c.op.kind == ReduceKind::Min || c.op.kind == ReduceKind::Max;
}

bool hasTcpAlgorithm(Kind kind, std::string_view name) { return find(kind, name) != nullptr; }

std::string tcpAlgorithmNames(const Kind* kind) {
  std::vector<std::string_view> names;
  for (const Named& named : kAlgorithms) {
    const bool known = std::find(names.begin(), names.end(), named.name) != names.end();
    if (!known && (kind == nullptr || named.kind == *kind)) names.push_back(named.name);
  }
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

TcpAlgorithm chooseTcpAlgorithm(const Collective& c, int size, std::string_view preferred,
                                bool inRankOrder) {
  const Named* const wanted = find(c.kind, preferred);
  if (wanted != nullptr && !(inRankOrder && wanted->sumsPartially)) return wanted->algorithm;
  const size_t bytes = directBytes(c, size);
  const bool sumsPartially = !inRankOrder && toleratesPartialSums(c);
  for (const Default& row : kDefaults) {
    if (row.kind != c.kind || size > row.ranks || bytes > row.bytes) continue;
    const Named* const named = find(row.kind, row.name);
    if (named != nullptr && (sumsPartially || !named->sumsPartially)) return named->algorithm;
  }
  throw Error(ErrorKind::InvalidArgument, std::string(nameOf(c.kind)) + " is not a collective");
}

}  // namespace ctran
