// A process of the pool: waits for scenarios, takes its part in each, and says how it went.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "ctran/base/error.h"
#include "tests/faults/scenario.h"

namespace ctran::testing {

/// What the conductor and the ranks share; zeros before each scenario.
struct Stage {
  std::array<std::atomic<uint32_t>, kMaxRanks> calls;  ///< begun, per rank; 1: creation
  std::atomic<int64_t> brokenAt;                       ///< nanos of the monotonic clock
  std::atomic<int> recovered;                          ///< ranks that are through with the new one
  char store[128];                                     ///< a directory
  char handles[kMaxRanks][1024];                       ///< of their InitPoints
};

/// What belongs to a process and could leak.
struct Belongings {
  int descriptors = 0, threads = 0;
  int sockets = 0, mappings = 0;  ///< mappings of shared memory
  int64_t heap = 0;               ///< bytes in use

  // What leaks does so again and again. One that is about to be closed is no leak, nor what a
  // library keeps from its first use on, which may come late.
  static constexpr int kSlack = 2;
  static constexpr int64_t kHeapSlack = 1 << 20;
  bool fitsInto(const Belongings& usual) const {
    return descriptors <= usual.descriptors + kSlack && sockets <= usual.sockets + kSlack &&
           threads <= usual.threads + kSlack && heap <= usual.heap + kHeapSlack;
  }
};

/// How one rank fared in one scenario.
struct Account {
  uint64_t number = 0;
  bool failed = false;  ///< it got an error; then
  bool creating = false;
  ErrorKind kind = ErrorKind::System;
  int rankCount = 0;
  std::array<int, kMaxRanks> ranks{};
  int64_t noticedNanos = 0;  ///< after the fault
  char error[2000] = {};
  char inChild[2000] = {};   ///< the error of a child, if that is where the fault was met
  char wrong[2000] = {};     ///< what must not be: wrong data, odd errors
  char recovery[1000] = {};  ///< why there is no new communicator; empty if it worked
  uint32_t calls = 0;
  Belongings belongings;
};

/// What a rank is told.
struct Orders {
  Scenario scenario;
  int rank = 0;
};

/// Where the victim's signal handlers look; set before the signal is sent.
struct Injection {
  std::atomic<int64_t> clockOffsetSeconds;
};

/// Never returns: ends with the conductor, at the latest.
[[noreturn]] void serveAsRank(int orders, Stage& stage, Injection& injection);

Belongings countBelongings();

/// The time of day is off by so many seconds from now on, in this process; see clock.cpp.
void shiftTimeOfDay(const std::atomic<int64_t>* seconds);

}  // namespace ctran::testing
