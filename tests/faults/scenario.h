// What is broken, and when: drawn from a seed, the same for all ranks.
#pragma once

#include <cstdint>
#include <string>

#include "tests/unit/support/cases.h"

namespace ctran::testing {

enum class Fault : uint8_t { Kill, Pause, Stop, Reset, Descriptors, Clock, Memory };
inline constexpr int kFaults = 7;
const char* nameOf(Fault fault);

enum class Reach : uint8_t { OneHost, HostPerRank, TwoHosts };
const char* nameOf(Reach reach);

inline constexpr int kMaxRanks = 4;

struct Scenario {
  uint64_t seed = 0;
  uint64_t number = 0;
  Fault fault = Fault::Kill;
  Reach reach = Reach::OneHost;
  int size = 3;
  int victim = 0;
  bool whileCreating = false;  ///< the fault may come before the communicator is there
  uint32_t delayMicros = 0;    ///< from when all are under way
  int calls = 0;               ///< where nothing may fail: so many
  int timeoutMillis = 0;       ///< of operations
  bool reforms = false;        ///< the survivors meet by their handles, as reconfigure does
  int connections = 1;         ///< of each pair of ranks on different hosts
  bool forbids = false;        ///< Descriptors: one that is closed cannot be had again either

  /// Whether ranks call until they get an error.
  bool breaks() const {
    return fault == Fault::Kill || fault == Fault::Stop || fault == Fault::Reset ||
           fault == Fault::Memory;
  }
  /// Whether a rank may get an error.
  bool mayFail() const { return breaks() || fault == Fault::Descriptors; }
  /// Whether the victim is gone for good.
  bool kills() const { return fault == Fault::Kill || fault == Fault::Memory; }

  std::string host(int rank) const;
  std::string describe() const;
};

/// `faults` has bit f if Fault f may be drawn.
Scenario drawScenario(uint64_t seed, uint64_t number, uint32_t faults);

/// The kinds of calls, beside the collectives.
enum class Call : uint8_t { Collective, Messages, Split, SeveralPosted };

/// The call of that number in a scenario, as all ranks make it.
struct NextCall {
  Call call = Call::Collective;
  Case what;
};
NextCall drawCall(const Scenario& scenario, uint64_t number);

}  // namespace ctran::testing
