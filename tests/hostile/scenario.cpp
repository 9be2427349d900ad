#include "tests/hostile/scenario.h"

#include <iterator>

#include "tests/unit/support/cases.h"

namespace ctran::testing {

const char* nameOf(State state) {
  constexpr const char* kNames[] = {"create", "small", "large",  "posted", "messages",   "lists",
                                    "rows",   "split", "window", "idle",   "reconfigure"};
  static_assert(std::size(kNames) == kStates);
  return kNames[static_cast<size_t>(state)];
}

std::string Scenario::host(int rank) const {
  const bool isVictim = rank != hostile;
  return "hostile" + std::to_string(number) + "/" +
         std::to_string(twoHosts && isVictim ? (hostile + 1) % kRanks : rank);
}

std::string Scenario::describe() const {
  constexpr const char* kKinds[] = {"field", "payload", "extra", "silence"};
  return "--seed " + std::to_string(seed) + " --only " + std::to_string(number) + ": in " +
         nameOf(state) + " rank " + std::to_string(hostile) +
         (twoHosts ? " beside a host of two, " : ", ") + std::to_string(connections) +
         " connections, " + kKinds[lie.kind] + " " + std::to_string(lie.field) + " of frame " +
         std::to_string(lie.after) + (lie.isRelative ? " += " : " = ") + std::to_string(lie.value) +
         (lie.kind == Lie::Extra
              ? ", type " + std::to_string(lie.type) + ", " + std::to_string(lie.times) + " times"
              : "");
}

Scenario drawScenario(uint64_t seed, uint64_t number) {
  uint64_t random = mix(seed * 0x10001 + number);
  const auto next = [&random](uint64_t below) {
    random = mix(random + 1);
    return random % below;
  };
  constexpr uint64_t kValues[] = {0,          1,
                                  2,          55,
                                  56,         57,
                                  63,         64,
                                  4095,       4096,
                                  65535,      65536,
                                  65537,      262144,
                                  262145,     1048576,
                                  0x7fffffff, 0x80000000,
                                  0xffffffff, 1ull << 32,
                                  1ull << 40, 1ull << 52,
                                  1ull << 62, INT64_MAX,
                                  1ull << 63, UINT64_MAX - 55,
                                  UINT64_MAX};
  Scenario s;
  s.seed = seed;
  s.number = number;
  // Every state in turn, so that a short run comes to all of them.
  s.state = static_cast<State>((number + seed) % kStates);
  s.twoHosts = next(2) == 0;
  s.hostile = static_cast<int>(s.twoHosts ? 2 * next(2) : next(kRanks));
  s.connections = next(4) == 0 ? 2 : 1;
  Lie& lie = s.lie;
  constexpr Lie::Kind kKinds[] = {Lie::Field,   Lie::Field, Lie::Field, Lie::Payload, Lie::Payload,
                                  Lie::Payload, Lie::Extra, Lie::Extra, Lie::Extra,   Lie::Silence};
  lie.kind = s.state == State::Idle ? Lie::Extra : kKinds[next(std::size(kKinds))];
  lie.after = static_cast<uint32_t>(next(next(2) == 0 ? 3 : 20));
  lie.type = static_cast<uint32_t>(next(8) == 0 ? next(12) : 1 + next(8));
  lie.field = static_cast<uint32_t>(next(lie.kind == Lie::Payload ? 8 : 9));
  lie.isRelative = next(4) == 0;
  lie.value = lie.isRelative ? (next(2) == 0 ? 1 : UINT64_MAX) : kValues[next(std::size(kValues))];
  constexpr uint32_t kTimes[] = {1, 1, 1, 2, 20, 5000};
  lie.times = kTimes[next(std::size(kTimes))];
  lie.inFailure = next(2) == 0;
  return s;
}

}  // namespace ctran::testing
