#include "ctran/collective/net_cost.h"

#include <algorithm>
#include <bit>

namespace ctran {
namespace {

/// In microseconds, about, between hosts of one rack: until what is sent is there; to send, or to
/// receive, one more message meanwhile; per byte on the wire; per byte that is reduced or copied.
constexpr double kStep = 15, kMessage = 2, kByte = 1 / 2e3, kTouch = 1 / 4e3;
/// For each connection of a rank beyond so many: its memory, its queues, and losses where many send
/// to one.
constexpr double kCrowd = 50, kCrowdAtOne = 5;
constexpr int kConnections = 32;

}  // namespace

bool NetShape::isDivided() const {
  return kind == CollectiveKind::ReduceScatter || kind == CollectiveKind::ReduceScatterV ||
         kind == CollectiveKind::Scatter || kind == CollectiveKind::AllToAll;
}

double NetLoad::micros(int sharing) const {
  return kStep * steps + kMessage * messages + kByte * sharing * moved + kTouch * touched + crowd;
}

double crowdOf(int size, bool eachToEach) {
  return (eachToEach ? kCrowd : kCrowdAtOne) * std::max(0, size - kConnections);
}

int levelsOf(int size) { return std::bit_width(static_cast<unsigned>(size - 1)); }

int halvingStepsOf(int size) {
  const int core = std::bit_width(static_cast<unsigned>(size)) - 1;
  return isPowerOfTwo(size) ? core : core + 1;
}

bool isPowerOfTwo(int size) { return std::has_single_bit(static_cast<unsigned>(size)); }

}  // namespace ctran
