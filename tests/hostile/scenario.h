// What the hostile member does, and when: drawn from a seed, the same for all ranks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace ctran::testing {

inline constexpr int kRanks = 3;

/// Where the ranks are when the lie is told.
enum class State : uint8_t {
  Create,
  Small,
  Large,
  Posted,
  Messages,
  Lists,
  Rows,
  Split,
  Window,
  Idle,
  Reconfigure
};
inline constexpr int kStates = 11;
const char* nameOf(State state);

/// What the hostile member says otherwise than the engine in it.
struct Lie {
  enum Kind : uint8_t {
    Field,    ///< one field of the header of a frame
    Payload,  ///< one word of its payload
    Extra,    ///< another frame before it, with one field as it must not be; or several
    Silence,  ///< the frame does not leave
  };
  Kind kind = Field;
  uint32_t after = 0;  ///< so many frames of the state pass first
  uint32_t type = 0;   ///< of the extra frame
  uint32_t field = 0;  ///< of the header; the number of the word
  uint64_t value = 0;
  bool isRelative = false;  ///< the value is added to what the engine says
  uint32_t times = 1;       ///< so many extra frames
  bool inFailure = false;   ///< an extra Failure says something that can be read
};

struct Scenario {
  uint64_t seed = 0, number = 0;
  State state = State::Create;
  Lie lie;
  int hostile = 2;
  bool twoHosts = false;  ///< the victims share one; otherwise every rank is alone
  int connections = 1;    ///< of each pair

  std::string host(int rank) const;
  std::string describe() const;
};

Scenario drawScenario(uint64_t seed, uint64_t number);

/// How one rank fared.
struct Account {
  uint64_t number = 0;
  bool failed = false, named = false, timedOut = false;
  uint32_t ranks = 0;     ///< a bit for each rank that the error has
  int64_t allocated = 0;  ///< bytes beyond those before, at most
  uint32_t lies = 0;      ///< that were told
  char error[3000] = {};
  char wrong[1000] = {};  ///< what must not be
};

/// What all processes share.
struct Stage {
  char store[128];
  std::array<std::atomic<uint64_t>, kRanks> handlesOf;  ///< the number of the scenario they are of
  char handles[kRanks][4096];
};

/// Takes the part of one rank in the scenarios that it is told; never returns.
[[noreturn]] void serveAsMember(int orders, int rank, Stage& stage);

}  // namespace ctran::testing
