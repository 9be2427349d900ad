#include "ctran/collective/net_cost.h"

#include <algorithm>
#include <bit>

namespace ctran {
namespace {

/// Approximate costs in microseconds between hosts of one rack: until a message that was sent is
/// there; to send or receive another message meanwhile; per byte on the wire; per byte that is
/// reduced or copied.
constexpr double kStep = 15, kMessage = 2, kByte = 1 / 2e3, kTouch = 1 / 4e3;
/// For each connection of a rank beyond so many: its memory, its queues, and losses where many send
/// to one.
constexpr double kCrowd = 50, kCrowdAtOne = 5;
constexpr int kCrowdFrom = 32;

using Kind = CollectiveKind;

bool sums(const AlgorithmQuery& q) {
  return q.kind == Kind::ReduceScatter || q.kind == Kind::ReduceScatterV;
}

}  // namespace

double netMicros(const AlgorithmQuery& q, const NetLoad& load) {
  return kStep * load.steps + kMessage * load.messages + kByte * q.sharing * load.moved +
         kTouch * load.touched + load.crowd;
}

double crowdOf(int size, bool eachToEach) {
  return (eachToEach ? kCrowd : kCrowdAtOne) * std::max(0, size - kCrowdFrom);
}

int levelsOf(int size) { return std::bit_width(static_cast<unsigned>(size - 1)); }

int halvingStepsOf(int size) {
  const int core = std::bit_width(static_cast<unsigned>(size)) - 1;
  return isPowerOfTwo(size) ? core : core + 1;
}

bool isPowerOfTwo(int size) { return std::has_single_bit(static_cast<unsigned>(size)); }

double crowding(int size) { return 1 + std::max(0, size - 32) / 100.0; }

double twoStepsMicros(const AlgorithmQuery& q) {
  const double peers = q.size - 1;
  const double part = peers / q.size * static_cast<double>(q.bytes);
  return netMicros(q, {2, 2 * peers, 2 * part * crowding(q.size), 0, 2 * crowdOf(q.size, true)});
}

double straightMicros(const AlgorithmQuery& q) {
  const bool oneHasAll = q.kind == Kind::Scatter || q.kind == Kind::Gather;
  const double moved = q.others() * (oneHasAll ? 1 : crowding(q.size));
  return netMicros(q, {1, q.size - 1.0, moved, 0, crowdOf(q.size, !oneHasAll)});
}

double oneByOneMicros(const AlgorithmQuery& q) {
  return netMicros(q, {q.size - 1.0, q.size - 1.0, q.others(), sums(q) ? q.others() : 0});
}

double byHalvesMicros(const AlgorithmQuery& q) {
  const double steps = halvingStepsOf(q.size);
  const double moved = q.others() + (isPowerOfTwo(q.size) ? 0 : q.all());
  return netMicros(q, {steps, steps, moved, sums(q) ? moved : 0});
}

double treeOfBlocksMicros(const AlgorithmQuery& q) {
  const double levels = levelsOf(q.size);
  return netMicros(q, {levels, levels, q.others(), q.all() / 2});
}

}  // namespace ctran
