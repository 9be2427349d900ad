#include <algorithm>
#include <iterator>

#include "ctran/base/error.h"
#include "ctran/collective/net_algorithms.h"

namespace ctran {
namespace {

using Kind = CollectiveKind;

/// A tensor goes in segments of that size where ranks pass it on.
constexpr double kSegment = 256 << 10;

/// Where each rank sends to each at once, and these are many, so many times the bytes take as long:
/// what comes from all at once waits, or is lost, before the receiver.
double crowding(int size) { return 1 + std::max(0, size - 32) / 100.0; }

NetLoad dissemination(const NetShape& f) {
  const double levels = levelsOf(f.size);
  return {levels, levels};
}

// Of one tensor.
NetLoad broadcastTree(const NetShape& f) {
  const double levels = levelsOf(f.size);
  return {levels, levels * (1 + f.bytes / kSegment), levels * f.bytes};
}
NetLoad broadcastToEach(const NetShape& f) {
  const double peers = f.size - 1;
  return {1, peers, peers * f.bytes, 0, crowdOf(f.size, false)};
}
NetLoad twoSteps(const NetShape& f) {
  const double peers = f.size - 1;
  const double part = peers / f.size * f.bytes;
  return {2, 2 * peers, 2 * part * crowding(f.size), 0, 2 * crowdOf(f.size, true)};
}
NetLoad allReduceAtOnce(const NetShape& f) {
  const double peers = f.size - 1;
  const double moved = peers * f.bytes * crowding(f.size);
  return {1, peers, moved, peers * f.bytes, crowdOf(f.size, true)};
}
NetLoad allReduceInARing(const NetShape& f) {
  const double peers = f.size - 1, part = peers / f.size * f.bytes;
  return {2 * peers, 2 * peers, 2 * part, part};
}
NetLoad allReduceByHalves(const NetShape& f) {
  const double steps = 2 * halvingStepsOf(f.size), part = f.bytes * (f.size - 1) / f.size;
  const double folded = isPowerOfTwo(f.size) ? 0 : f.bytes;
  return {steps, steps, 2 * (part + folded), part + folded};
}
NetLoad reduceAtRoot(const NetShape& f) {
  const double peers = f.size - 1;
  return {1, peers, peers * f.bytes, peers * f.bytes, crowdOf(f.size, false)};
}
NetLoad reduceInATree(const NetShape& f) {
  const double levels = levelsOf(f.size);
  return {levels, levels, levels * f.bytes, levels * f.bytes};
}

// Of blocks.
NetLoad straight(const NetShape& f) {
  const bool oneHasAll = f.kind == Kind::Scatter || f.kind == Kind::Gather;
  const double moved = f.others() * (oneHasAll ? 1 : crowding(f.size));
  return {1, f.size - 1.0, moved, 0, crowdOf(f.size, !oneHasAll)};
}
NetLoad oneByOne(const NetShape& f) {
  const bool sums = f.kind == Kind::ReduceScatter || f.kind == Kind::ReduceScatterV;
  return {f.size - 1.0, f.size - 1.0, f.others(), sums ? f.others() : 0};
}
NetLoad byHalves(const NetShape& f) {
  const double steps = halvingStepsOf(f.size);
  const bool sums = f.kind == Kind::ReduceScatter || f.kind == Kind::ReduceScatterV;
  const double moved = f.others() + (isPowerOfTwo(f.size) ? 0 : f.all());
  return {steps, steps, moved, sums ? moved : 0};
}
NetLoad blocksInATree(const NetShape& f) {
  const double levels = levelsOf(f.size);
  return {levels, levels, f.others(), f.all() / 2};
}
NetLoad gatherByBruck(const NetShape& f) {
  const double levels = levelsOf(f.size);
  return {levels, levels, f.others(), f.all()};
}
NetLoad exchangeByBruck(const NetShape& f) {
  const double levels = levelsOf(f.size);
  return {levels, levels, levels / 2 * f.all(), 2 * f.all()};
}

constexpr NetChoice kChoices[] = {
    {Kind::Barrier, "dissemination", barrierDissemination, dissemination},
    {Kind::Broadcast, "binomial", broadcastBinomial, broadcastTree},
    {Kind::Broadcast, "direct", broadcastDirect, broadcastToEach},
    {Kind::Broadcast, "scatter_all_gather", broadcastScatterAllGather, twoSteps},
    {Kind::AllReduce, "direct", allReduceDirect, allReduceAtOnce},
    {Kind::AllReduce, "two_phase", allReduceTwoPhase, twoSteps},
    {Kind::AllReduce, "ring", allReduceRing, allReduceInARing, true},
    {Kind::AllReduce, "halving_doubling", allReduceHalvingDoubling, allReduceByHalves, true},
    {Kind::Reduce, "direct", reduceDirect, reduceAtRoot},
    {Kind::Reduce, "two_phase", reduceTwoPhase, twoSteps},
    {Kind::Reduce, "binomial", reduceBinomial, reduceInATree, true},
    {Kind::AllGather, "direct", allGatherDirect, straight},
    {Kind::AllGather, "ring", allGatherRing, oneByOne},
    {Kind::AllGather, "recursive_doubling", allGatherRecursiveDoubling, byHalves},
    {Kind::AllGather, "bruck", allGatherBruck, gatherByBruck},
    {Kind::AllGatherV, "direct", allGatherDirect, straight},
    {Kind::AllGatherV, "ring", allGatherRing, oneByOne},
    {Kind::AllGatherV, "recursive_doubling", allGatherRecursiveDoubling, byHalves},
    {Kind::AllGatherV, "bruck", allGatherBruck, gatherByBruck},
    {Kind::ReduceScatter, "direct", reduceScatterDirect, straight},
    {Kind::ReduceScatter, "ring", reduceScatterRing, oneByOne, true},
    {Kind::ReduceScatter, "recursive_halving", reduceScatterRecursiveHalving, byHalves, true},
    {Kind::ReduceScatterV, "direct", reduceScatterDirect, straight},
    {Kind::ReduceScatterV, "ring", reduceScatterRing, oneByOne, true},
    {Kind::ReduceScatterV, "recursive_halving", reduceScatterRecursiveHalving, byHalves, true},
    {Kind::Scatter, "direct", scatterDirect, straight},
    {Kind::Scatter, "binomial", scatterBinomial, blocksInATree},
    {Kind::Gather, "direct", gatherDirect, straight},
    {Kind::Gather, "binomial", gatherBinomial, blocksInATree},
    {Kind::AllToAll, "direct", allToAllDirect, straight},
    {Kind::AllToAll, "pairwise", allToAllPairwise, oneByOne},
    {Kind::AllToAll, "bruck", allToAllBruck, exchangeByBruck},
    // How much goes is only known to the ranks together.
    {Kind::AllToAllV, "direct", allToAllVDirect, straight},
    {Kind::AllToAllV, "pairwise", allToAllVPairwise, oneByOne},
};

}  // namespace

std::span<const NetChoice> netChoices(Kind kind) {
  const auto* const first = std::find_if(std::begin(kChoices), std::end(kChoices),
                                         [kind](const NetChoice& c) { return c.kind == kind; });
  const auto* const last = std::find_if(first, std::end(kChoices),
                                        [kind](const NetChoice& c) { return c.kind != kind; });
  return {first, last};
}

double microsOf(const NetChoice& choice, size_t bytes, int size, int sharing) {
  return choice.load({choice.kind, static_cast<double>(bytes), size}).micros(sharing);
}

const NetChoice& cheapestNet(Kind kind, size_t bytes, int size, bool partialSums, int sharing,
                             double* micros) {
  const NetChoice* best = nullptr;
  double least = 0;
  for (const NetChoice& choice : netChoices(kind)) {
    if (choice.sumsPartially && !partialSums) continue;
    const double us = microsOf(choice, bytes, size, sharing);
    if (best == nullptr || us < least) {
      best = &choice;
      least = us;
    }
  }
  if (best == nullptr) {
    throw Error(ErrorKind::InvalidArgument, std::string(nameOf(kind)) + " is not a collective");
  }
  if (micros != nullptr) *micros = least;
  return *best;
}

bool toleratesPartialSums(DataType type, ReduceKind op) {
  const bool small = type == DataType::Float8E4M3 || type == DataType::Float8E5M2 ||
                     type == DataType::Float16 || type == DataType::BFloat16;
  return !small || op == ReduceKind::Min || op == ReduceKind::Max;
}

bool hasNetAlgorithm(Kind kind, std::string_view name) {
  const auto choices = netChoices(kind);
  return std::any_of(choices.begin(), choices.end(),
                     [&](const NetChoice& choice) { return choice.name == name; });
}

std::string netAlgorithmNames(const Kind* kind) {
  std::vector<std::string_view> names;
  for (const NetChoice& choice : kChoices) {
    const bool known = std::find(names.begin(), names.end(), choice.name) != names.end();
    if (!known && (kind == nullptr || choice.kind == *kind)) names.push_back(choice.name);
  }
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

}  // namespace ctran
