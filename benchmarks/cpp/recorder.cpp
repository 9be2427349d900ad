#include "benchmarks/cpp/recorder.h"

#include <algorithm>
#include <cmath>

#include "ctran/base/clock.h"
#include "ctran/os/shared_memory.h"
#include "ctran/trace/operation_trace.h"

namespace bench {
namespace {

/// Nanoseconds that the recorder itself takes for an operation of 64 bytes that waits once, back to
/// back in this process: of many turns the fastest.
double alone(bool on) {
  constexpr int kTurns = 400, kOperations = 5000;
  const size_t bytes = ctran::Recording::bytesFor(1);
  const auto memory = ctran::createSharedMemory("bench", bytes);
  ctran::Recording recording(ctran::SharedMapping::map(memory, bytes), 1, 0,
                             {0, 2, "bench", "here", 0, 0});
  recording.turn(on);
  ctran::OperationTrace trace;
  int64_t fastest = INT64_MAX;
  for (int turn = 0; turn < kTurns; ++turn) {
    const int64_t begin = ctran::nowNanos();
    for (uint64_t i = 0; i < kOperations; ++i) {
      trace.begin(&recording, false, {i, i, 0x1234, 16, {}}, 64, 0, 0);
      trace.chose(1);
      trace.waits(1);
      trace.moved();
      trace.ended();
    }
    fastest = std::min(fastest, ctran::nowNanos() - begin);
  }
  return static_cast<double>(fastest) / kOperations;
}

double quantile(std::vector<double> samples, double share) {
  std::sort(samples.begin(), samples.end());
  return samples[static_cast<size_t>(share * static_cast<double>(samples.size() - 1))];
}

/// Nanoseconds per call, of every turn.
struct Turns {
  std::vector<double> without, with, more;
};

Turns measure(std::vector<Channel>& ranks, Op op, size_t bytes, const SweepOptions& options) {
  const std::string point = std::string(info(op).name) + ' ' + std::to_string(bytes) + ' ';
  const auto time = [&](long warmup, long calls) {
    return ask(ranks, "time " + point + std::to_string(warmup) + ' ' + std::to_string(calls)) * 1e9;
  };
  ask(ranks, "check " + point);
  const double estimate = std::max(time(10, 100), 10.0);
  const long calls = std::clamp(std::lround(options.minSeconds * 1e9 / estimate), 10L, 200000L);
  Turns turns;
  for (int r = 0; r < options.repeats; ++r) {
    double nanos[2];
    for (const bool second : {false, true}) {
      const bool on = (r % 2 == 0) == second;  // neither is always the first
      ask(ranks, on ? "record on" : "record off");
      nanos[on] = time(calls / 10 + 2, calls);
    }
    turns.without.push_back(nanos[0]);
    turns.with.push_back(nanos[1]);
    turns.more.push_back(nanos[1] - nanos[0]);
  }
  return turns;
}

}  // namespace

bool sweepRecorder(std::vector<Channel>& ranks, const SweepOptions& options) try {
  std::printf("%zu ranks; nanoseconds per call without and with the recorder, %d turns of each\n",
              ranks.size(), options.repeats);
  std::printf("the recorder alone, of an operation that waits once: %.1f ns, off %.1f ns\n",
              alone(true), alone(false));
  std::printf("\n%-15s %10s %10s %10s %10s %10s %8s %19s\n", "", "bytes", "median", "with it",
              "fastest", "with it", "more", "25 % to 75 %");
  for (const Op op : options.ops) {
    const std::vector<size_t> sizes = op == Op::Barrier ? std::vector<size_t>{0} : options.sizes;
    for (const size_t bytes : sizes) {
      const Turns turns = measure(ranks, op, bytes, options);
      const auto fastest = [](const auto& samples) {
        return *std::min_element(samples.begin(), samples.end());
      };
      std::printf("%-15s %10zu %10.1f %10.1f %10.1f %10.1f %8.1f %8.1f to %7.1f\n",
                  std::string(info(op).name).c_str(), bytes, quantile(turns.without, 0.5),
                  quantile(turns.with, 0.5), fastest(turns.without), fastest(turns.with),
                  quantile(turns.more, 0.5), quantile(turns.more, 0.25),
                  quantile(turns.more, 0.75));
      std::fflush(stdout);
      if (options.json == nullptr) continue;
      std::fprintf(options.json,
                   R"({"op": "%s", "ranks": %zu, "bytes": %zu, "turns": %d, "without_ns": %.1f, )"
                   R"("with_ns": %.1f, "fastest_without_ns": %.1f, "fastest_with_ns": %.1f, )"
                   R"("more_ns": %.1f})"
                   "\n",
                   std::string(info(op).name).c_str(), ranks.size(), bytes, options.repeats,
                   quantile(turns.without, 0.5), quantile(turns.with, 0.5), fastest(turns.without),
                   fastest(turns.with), quantile(turns.more, 0.5));
    }
  }
  return true;
} catch (const std::exception& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", error.what());
  return false;
}

}  // namespace bench
