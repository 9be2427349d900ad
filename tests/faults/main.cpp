// ctran_soak: see README.md.
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "ctran/base/clock.h"
#include "tests/faults/conductor.h"

namespace ctran::testing {
namespace {

struct Arguments {
  uint64_t faults = 10'000;
  uint64_t seed = 1;
  int64_t only = -1;
  uint32_t kinds = (1u << kFaults) - 1;
  double seconds = 0;    // 0: no limit
  bool oneHost = false;  ///< only scenarios of one host
  bool hold = false;     ///< after a failure, for a debugger
  bool verbose = false;  ///< each scenario and its time
};

[[noreturn]] void usage(const char* program) {
  std::fprintf(stderr,
               "usage: %s [--faults N] [--seed N] [--seconds N] [--only NUMBER] [--fault KIND]... "
               "[--one-host] [--hold] [--verbose]\n  kinds:",
               program);
  for (int f = 0; f < kFaults; ++f) std::fprintf(stderr, " %s", nameOf(static_cast<Fault>(f)));
  std::fprintf(stderr, "\n");
  std::exit(2);
}

Arguments parse(int count, char** words) {
  Arguments arguments;
  bool chosen = false;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--hold" || word == "--verbose" || word == "--one-host") {
      (word == "--hold"      ? arguments.hold
       : word == "--verbose" ? arguments.verbose
                             : arguments.oneHost) = true;
      continue;
    }
    if (i + 1 >= count) usage(words[0]);
    const char* value = words[++i];
    if (word == "--faults") {
      arguments.faults = std::strtoull(value, nullptr, 10);
    } else if (word == "--seed") {
      arguments.seed = std::strtoull(value, nullptr, 10);
    } else if (word == "--seconds") {
      arguments.seconds = std::strtod(value, nullptr);
    } else if (word == "--only") {
      arguments.only = std::strtoll(value, nullptr, 10);
    } else if (word == "--fault") {
      if (!std::exchange(chosen, true)) arguments.kinds = 0;
      int f = 0;
      while (f < kFaults && std::strcmp(nameOf(static_cast<Fault>(f)), value) != 0) ++f;
      if (f == kFaults) usage(words[0]);
      arguments.kinds |= 1u << f;
    } else {
      usage(words[0]);
    }
  }
  return arguments;
}

void progress(const Tally& tally, uint64_t of, double seconds) {
  std::fprintf(stderr, "%llu of %llu faults, %.1f a second, %llu calls, %llu failures\n",
               static_cast<unsigned long long>(tally.faults), static_cast<unsigned long long>(of),
               static_cast<double>(tally.faults) / seconds,
               static_cast<unsigned long long>(tally.calls),
               static_cast<unsigned long long>(tally.failures));
}

volatile sig_atomic_t gStopped = 0;

/// Ends after the fault that is being judged, so that nothing is left behind.
void stopSoon(int) { gStopped = 1; }

int soak(const Arguments& arguments) {
  Conductor conductor(arguments.hold);
  ::signal(SIGINT, stopSoon);
  ::signal(SIGTERM, stopSoon);
  uint32_t kinds = arguments.kinds;
  const uint32_t memory = 1u << static_cast<int>(Fault::Memory);
  if ((kinds & memory) != 0 && !conductor.cgroup().whyNot().empty()) {
    std::printf("left out: memory, as %s\n", conductor.cgroup().whyNot().c_str());
    kinds &= ~memory;
  }
  if (kinds == 0) return 1;
  std::printf("seed %llu\n", static_cast<unsigned long long>(arguments.seed));
  const int64_t start = nowNanos();
  const auto seconds = [start] { return static_cast<double>(nowNanos() - start) * 1e-9; };
  double told = 0;
  uint64_t number = arguments.only >= 0 ? static_cast<uint64_t>(arguments.only) : 0;
  for (uint64_t i = 0; i < arguments.faults; ++i) {
    const Scenario scenario = drawScenario(arguments.seed, number, kinds);
    if (arguments.only < 0) ++number;
    if (arguments.oneHost && scenario.reach != Reach::OneHost) continue;
    const double before = seconds();
    conductor.run(scenario);
    if (arguments.verbose) {
      std::fprintf(stderr, "%.1f ms: %s\n", (seconds() - before) * 1e3,
                   scenario.describe().c_str());
    }
    const Tally& tally = conductor.tally();
    if (seconds() - told > 5) {
      told = seconds();
      progress(tally, arguments.faults, told);
    }
    if (gStopped != 0) break;
    if (tally.failures >= 10 || (arguments.seconds > 0 && seconds() > arguments.seconds)) break;
  }
  const Tally& tally = conductor.tally();
  progress(tally, arguments.faults, seconds());
  for (const auto& [fault, kind] : tally.perFault) {
    std::printf("%8llu %-12s %7.1f ms each, %7.1f ms at most\n",
                static_cast<unsigned long long>(kind.faults), fault.c_str(),
                static_cast<double>(kind.nanos) * 1e-6 / static_cast<double>(kind.faults),
                static_cast<double>(kind.longest) * 1e-6);
  }
  std::printf("a loss was noticed after %.1f ms at the latest: %s\n",
              static_cast<double>(tally.latestNotice) * 1e-6, tally.latestScenario.c_str());
  if (tally.indirect > 0) {
    std::printf("%llu survivors named a rank that waited for the victim, or gave up for it\n",
                static_cast<unsigned long long>(tally.indirect));
  }
  std::printf("%llu faults with seed %llu: %s\n", static_cast<unsigned long long>(tally.faults),
              static_cast<unsigned long long>(arguments.seed),
              tally.failures == 0 ? "all survived" : "FAILED");
  return tally.failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ctran::testing

int main(int count, char** words) {
  using namespace ctran::testing;
  return soak(parse(count, words));
}
