#include "tests/faults/scenario.h"

#include <iterator>

namespace ctran::testing {
namespace {

/// A stream of numbers that follows from its seed.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(mix(seed)) {}
  uint64_t below(uint64_t end) { return (state_ = mix(state_)) % end; }
  bool chance(int percent) { return below(100) < static_cast<uint64_t>(percent); }

 private:
  uint64_t state_;
};

// Whose sums are the same in any order.
constexpr DataType kTypes[] = {DataType::UInt8, DataType::Int32, DataType::Int64};

// Of a hundred faults; those that take long are rare.
constexpr int kShare[kFaults] = {52, 15, 3, 10, 8, 10, 2};

Fault drawFault(Dice& dice, uint32_t faults) {
  int total = 0;
  for (int f = 0; f < kFaults; ++f) total += (faults >> f & 1) != 0 ? kShare[f] : 0;
  int at = static_cast<int>(dice.below(static_cast<uint64_t>(total)));
  int f = 0;
  for (; f < kFaults - 1; ++f) {
    if ((faults >> f & 1) == 0) continue;
    if (at < kShare[f]) break;
    at -= kShare[f];
  }
  return static_cast<Fault>(f);
}

}  // namespace

const char* nameOf(Fault fault) {
  constexpr const char* kNames[] = {"kill",        "pause", "stop",  "reset",
                                    "descriptors", "clock", "memory"};
  return kNames[static_cast<int>(fault)];
}

const char* nameOf(Reach reach) {
  constexpr const char* kNames[] = {"one host", "a host per rank", "two hosts"};
  return kNames[static_cast<int>(reach)];
}

std::string Scenario::host(int rank) const {
  if (reach == Reach::OneHost) return "host";
  return "host" + std::to_string(reach == Reach::HostPerRank ? rank : rank / 2);
}

std::string Scenario::describe() const {
  return std::string(nameOf(fault)) + (forbids ? " forbidden to" : "") + " rank " +
         std::to_string(victim) + " of " + std::to_string(size) +
         (whileCreating ? " while creating or later" : "") + " on " + nameOf(reach) +
         (connections > 1 ? " of several connections" : "") + " after " +
         std::to_string(delayMicros) + " us (--seed " + std::to_string(seed) + " --only " +
         std::to_string(number) + ")";
}

Scenario drawScenario(uint64_t seed, uint64_t number, uint32_t faults) {
  Dice dice(seed ^ mix(number));
  Scenario s;
  s.seed = seed;
  s.number = number;
  s.fault = drawFault(dice, faults);
  s.reach = static_cast<Reach>(dice.below(3));
  if (s.fault == Fault::Reset && s.reach == Reach::OneHost) s.reach = Reach::HostPerRank;
  s.size = 3 + static_cast<int>(dice.below(2));
  s.victim = static_cast<int>(dice.below(static_cast<uint64_t>(s.size)));
  s.whileCreating = (s.fault == Fault::Kill && dice.chance(8)) ||
                    (s.fault == Fault::Descriptors && dice.chance(50));
  s.delayMicros = static_cast<uint32_t>(dice.below(dice.chance(80) ? 2000 : 10'000));
  s.calls = 4 + static_cast<int>(dice.below(20));
  s.timeoutMillis = s.fault == Fault::Stop ? 500 : 30'000;
  s.reforms = dice.chance(40);
  s.connections = s.reach != Reach::OneHost && dice.chance(50) ? 3 : 1;
  s.forbids = s.fault == Fault::Descriptors && dice.chance(50);
  return s;
}

NextCall drawCall(const Scenario& scenario, uint64_t number) {
  Dice dice(scenario.seed ^ mix(scenario.number * 1'000'003 + number));
  NextCall next;
  Case& c = next.what;
  c.kind = kKinds[dice.below(std::size(kKinds))];
  c.type = kTypes[dice.below(std::size(kTypes))];
  c.op.kind = dice.chance(70) ? ReduceKind::Sum : ReduceKind::Max;
  c.seed = dice.below(1u << 30);
  c.root =
      isRooted(c.kind) ? static_cast<int>(dice.below(static_cast<uint64_t>(scenario.size))) : 0;
  const uint64_t magnitude = dice.below(100);
  c.count = dice.below(magnitude < 70 ? 300 : magnitude < 95 ? 20'000 : 300'000) / sizeOf(c.type);
  c.inPlace = dice.chance(50);
  c.listed = dice.chance(30);
  c.posted = dice.chance(50);
  c.misalignment = dice.chance(30) ? 1 + dice.below(12) : 0;
  const uint64_t other = dice.below(100);
  if (other < 15) {
    next.call = Call::Messages;
  } else if (other < 25) {
    next.call = Call::SeveralPosted;
  } else if (other < 30) {
    next.call = Call::Split;
  }
  return next;
}

}  // namespace ctran::testing
