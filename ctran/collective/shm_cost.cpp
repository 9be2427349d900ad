#include "ctran/collective/shm_cost.h"

#include "ctran/collective/shm_context.h"

namespace ctran {
namespace {

using Kind = CollectiveKind;

/// What a step of all ranks costs before any byte moves, and a byte that is written to shared
/// memory, read from there, or reduced, in microseconds: about, between cores of one processor.
constexpr double kStart = 0.2, kStartPerRank = 0.02;
constexpr double kWrite = 1 / 30e3, kRead = 1 / 15e3, kReduce = 1 / 100e3;
/// The factor where publishing and reading overlap.
constexpr double kOverlap = 0.95;

/// The more ranks, the longer a byte takes them, who share the caches and the memory.
double contention(int ranks) { return 1 + ranks / 10.0; }
/// The factor for bytes in the memory of other processes, which pass the caches once.
double readContention(int ranks) { return 1 + ranks / 24.0; }

double trafficMicros(const ShmTraffic& t, int ranks) {
  return (t.written * kWrite + t.read * kRead + t.reduced * kReduce) * contention(ranks);
}

ShmTraffic directTraffic(const AlgorithmQuery& q) {
  const auto bytes = static_cast<double>(q.bytes);
  const int n = q.size;
  switch (q.kind) {
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

}  // namespace

double startMicros(int size) { return kStart + kStartPerRank * size; }

double inOneStepMicros(const ShmTraffic& traffic, int size) {
  return startMicros(size) + trafficMicros(traffic, size);
}

double inRoundsMicros(const ShmTraffic& traffic, int size, int phases) {
  return (1 + phases) * startMicros(size) + kOverlap * trafficMicros(traffic, size);
}

double lookIntoAllMicros(int size) { return (size - 1) * (1 + size / 16.0); }

double stepMicros(const AlgorithmQuery& q) { return inOneStepMicros(directTraffic(q), q.size); }
double roundsMicros(const AlgorithmQuery& q) { return inRoundsMicros(directTraffic(q), q.size, 1); }

double pullMicros(const AlgorithmQuery& q) {
  const ShmTraffic t = directTraffic(q);
  return 2 * startMicros(q.size) + lookIntoAllMicros(q.size) +
         t.read * kReadProcess * readContention(q.size) + t.reduced * kReduce;
}

double twoPhaseMicros(const AlgorithmQuery& q) {
  const auto bytes = static_cast<double>(q.bytes);
  const int n = q.size;
  return inRoundsMicros({bytes, 2 * bytes * (n - 1) / n, bytes * (n - 1) / n}, n, 2);
}

std::string whyNotInAStep(const AlgorithmQuery& q) {
  if (q.bytes <= Arena::kRoundBytes) return {};
  return "a rank contributes " + std::to_string(q.bytes) + " bytes, more than the " +
         std::to_string(Arena::kRoundBytes) + " of a step";
}

std::string whyNoAddresses(const AlgorithmQuery& q) {
  if (q.size <= ShmContext::kMostLent) return {};
  return "a slot has no room for more than " + std::to_string(ShmContext::kMostLent) + " addresses";
}

}  // namespace ctran
