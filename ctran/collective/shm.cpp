#include "ctran/base/error.h"
#include "ctran/collective/alone.h"
#include "ctran/collective/shm_algorithms.h"

namespace ctran {
namespace {

using Kind = CollectiveKind;

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

/// What a step of all ranks costs before any byte moves, and a byte that is written to shared
/// memory, read from there, or reduced, in microseconds: about, between cores of one processor.
constexpr double kStart = 0.2, kStartPerRank = 0.02;
constexpr double kWrite = 1 / 30e3, kRead = 1 / 15e3, kReduce = 1 / 100e3;
/// Where publishing and reading overlap.
constexpr double kOverlap = 0.95;

/// The more ranks, the longer a byte takes them, who share the caches and the memory.
double contention(int ranks) { return 1 + ranks / 10.0; }

struct Traffic {
  double written, read, reduced;  ///< bytes, of the busiest rank

  double micros(int ranks) const {
    return (written * kWrite + read * kRead + reduced * kReduce) * contention(ranks);
  }
};

double oneStep(Traffic t, int size) { return kStart + kStartPerRank * size + t.micros(size); }
double inRounds(Traffic t, int size, int phases) {
  return (1 + phases) * (kStart + kStartPerRank * size) + kOverlap * t.micros(size);
}

/// Everybody who needs a contribution reads it whole, or its part of it.
Traffic directTraffic(Kind kind, double bytes, int n) {
  switch (kind) {
    case Kind::AllReduce:
    case Kind::Reduce:
      return {bytes, bytes * (n - 1), bytes * (n - 1)};
    case Kind::AllGather:
    case Kind::AllGatherV:
    case Kind::Gather:
      return {bytes, bytes * (n - 1), 0};
    case Kind::Broadcast:
      return {bytes, bytes, 0};
    case Kind::Scatter:
      return {bytes, bytes / n, 0};
    case Kind::ReduceScatter:
    case Kind::ReduceScatterV:
      return {bytes, bytes * (n - 1) / n, bytes * (n - 1) / n};
    default:
      return {bytes, bytes * (n - 1) / n, 0};
  }
}

double stepMicros(Kind kind, size_t bytes, int n) {
  return oneStep(directTraffic(kind, static_cast<double>(bytes), n), n);
}
double roundsMicros(Kind kind, size_t bytes, int n) {
  return inRounds(directTraffic(kind, static_cast<double>(bytes), n), n, 1);
}
double twoPhaseMicros(Kind, size_t bytes, int n) {
  const auto b = static_cast<double>(bytes);
  return inRounds({b, 2 * b * (n - 1) / n, b * (n - 1) / n}, n, 2);
}

/// A byte that is read from the memory of another process.
constexpr double kReadProcess = 1 / 13e3;
/// There every byte passes the caches once.
double readContention(int ranks) { return 1 + ranks / 24.0; }
/// To look into each other process once, among others who do.
double lookIntoAll(int ranks) { return (ranks - 1) * (1 + ranks / 16.0); }

/// Each rank reads from each other one.
double pullMicros(Kind kind, size_t bytes, int n) {
  const Traffic t = directTraffic(kind, static_cast<double>(bytes), n);
  return 2 * (kStart + kStartPerRank * n) + lookIntoAll(n) +
         t.read * kReadProcess * readContention(n) + t.reduced * kReduce;
}
/// It writes what it reads through the caches, where so much of all ranks does not stay; what goes
/// through the rings is then written past them.
double pullAllMicros(Kind, size_t bytes, int n) {
  constexpr double kStays = 32 << 20;
  const auto whole = static_cast<double>(bytes) * n;
  const double moved = whole * (n - 1) / n + std::max(0.0, whole - kStays / n);
  return 2 * (kStart + kStartPerRank * n) + lookIntoAll(n) +
         moved * kReadProcess * (1 + n * n / 400.0);
}
/// It reads its part from each other one, and then the results of all from the rings.
double pullPartsMicros(Kind, size_t bytes, int n) {
  const double part = static_cast<double>(bytes) / n;
  return pullMicros(Kind::ReduceScatter, bytes, n) + inRounds({part, part * (n - 1), 0}, n, 0);
}
/// Each reads its part from the root, who is one for all, and then the parts of all from the rings.
double pullFromRootMicros(Kind, size_t bytes, int n) {
  constexpr double kReadRoot = 1 / 20e3, kLook = 0.75;
  const auto b = static_cast<double>(bytes);
  return 2 * (kStart + kStartPerRank * n) + kLook * lookIntoAll(n) + b * kReadRoot +
         inRounds({0, b, 0}, n, 0);
}

std::string fitsStep(size_t bytes, int) {
  if (bytes <= Arena::kRoundBytes) return {};
  return "a rank contributes " + std::to_string(bytes) + " bytes, more than the " +
         std::to_string(Arena::kRoundBytes) + " of a step";
}
std::string always(size_t, int) { return {}; }
std::string fitsAddresses(size_t, int size) {
  if (size <= ShmContext::kMostLent) return {};
  return "a slot has no room for more than " + std::to_string(ShmContext::kMostLent) + " addresses";
}

constexpr ShmChoice kChoices[] = {
    {Kind::Barrier, "step", barrierStep, always, stepMicros},
    {Kind::Broadcast, "step", broadcastStep, fitsStep, stepMicros},
    {Kind::Broadcast, "rounds", broadcastRounds, always, roundsMicros},
    {Kind::Broadcast, "pull", broadcastPull, always, pullFromRootMicros, true},
    {Kind::AllReduce, "step", allReduceStep, fitsStep, stepMicros},
    {Kind::AllReduce, "direct", allReduceDirect, always, roundsMicros},
    {Kind::AllReduce, "two_phase", allReduceTwoPhase, always, twoPhaseMicros},
    {Kind::AllReduce, "pull", allReducePull, always, pullPartsMicros, true},
    {Kind::Reduce, "step", reduceStep, fitsStep, stepMicros},
    {Kind::Reduce, "direct", reduceDirect, always, roundsMicros},
    {Kind::Reduce, "two_phase", reduceTwoPhase, always, twoPhaseMicros},
    {Kind::AllGather, "step", allGatherStep, fitsStep, stepMicros},
    {Kind::AllGather, "rounds", allGatherRounds, always, roundsMicros},
    {Kind::AllGather, "pull", allGatherPull, always, pullAllMicros, true},
    {Kind::AllGatherV, "step", allGatherStep, fitsStep, stepMicros},
    {Kind::AllGatherV, "rounds", allGatherRounds, always, roundsMicros},
    {Kind::AllGatherV, "pull", allGatherPull, always, pullAllMicros, true},
    {Kind::ReduceScatter, "step", reduceScatterStep, fitsStep, stepMicros},
    {Kind::ReduceScatter, "rounds", reduceScatterRounds, always, roundsMicros},
    {Kind::ReduceScatter, "pull", reduceScatterPull, fitsAddresses, pullMicros, true},
    {Kind::ReduceScatterV, "step", reduceScatterStep, fitsStep, stepMicros},
    {Kind::ReduceScatterV, "rounds", reduceScatterRounds, always, roundsMicros},
    {Kind::ReduceScatterV, "pull", reduceScatterPull, fitsAddresses, pullMicros, true},
    {Kind::Scatter, "step", scatterStep, fitsStep, stepMicros},
    {Kind::Scatter, "rounds", scatterRounds, always, roundsMicros},
    {Kind::Gather, "step", gatherStep, fitsStep, stepMicros},
    {Kind::Gather, "rounds", gatherRounds, always, roundsMicros},
    {Kind::AllToAll, "step", allToAllStep, fitsStep, stepMicros},
    {Kind::AllToAll, "rounds", allToAllRounds, always, roundsMicros},
    {Kind::AllToAll, "pull", allToAllPull, fitsAddresses, pullMicros, true},
    // What it does follows from the counts, which ranks only know together.
    {Kind::AllToAllV, "rounds", allToAllV, always, roundsMicros},
};

constexpr ShmChoice kAlone{Kind::Barrier, "copy", copyAlone, always, stepMicros};

}  // namespace

std::span<const ShmChoice> shmChoices(Kind kind) {
  const auto* const first = std::find_if(std::begin(kChoices), std::end(kChoices),
                                         [kind](const ShmChoice& c) { return c.kind == kind; });
  const auto* const last = std::find_if(first, std::end(kChoices),
                                        [kind](const ShmChoice& c) { return c.kind != kind; });
  return {first, last};
}

const ShmChoice& cheapestShm(Kind kind, size_t bytes, int size, bool reads, double* micros) {
  const ShmChoice* best = nullptr;
  double least = 0;
  for (const ShmChoice& choice : shmChoices(kind)) {
    if ((choice.reads && !reads) || !choice.whyNot(bytes, size).empty()) continue;
    const double us = choice.micros(kind, bytes, size);
    if (best == nullptr || us < least) {
      best = &choice;
      least = us;
    }
  }
  if (micros != nullptr) *micros = least;
  return *best;
}

const ShmChoice& shmAlone() { return kAlone; }

size_t contributionBytes(const Collective& c, int size) {
  switch (c.kind) {
    case Kind::Barrier:
    case Kind::AllToAllV:
      return 0;
    case Kind::AllGatherV:
      return largestBytes(c.outputs, c.type);
    case Kind::ReduceScatterV:
      return sumBytes(c.inputs, c.type);
    case Kind::ReduceScatter:
    case Kind::Scatter:
    case Kind::AllToAll:
      return c.blockBytes() * size;
    case Kind::Broadcast:
    case Kind::AllReduce:
    case Kind::Reduce:
    case Kind::AllGather:
    case Kind::Gather:
      return c.blockBytes();
    case Kind::Send:
    case Kind::Recv:
    case Kind::WaitSignal:
    case Kind::AllToAllVDynamic:
    case Kind::AllToAllVCombine:
      break;
  }
  throw Error(ErrorKind::InvalidArgument, std::string(nameOf(c.kind)) + " is not a collective");
}

}  // namespace ctran
