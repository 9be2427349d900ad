#include "benchmarks/cpp/plans.h"

#include <algorithm>
#include <cmath>

#include "ctran/collective/plan/shm.h"
#include "ctran/plan/library.h"

namespace bench {
namespace {

using ctran::plan::BuiltIn;

/// In shared memory the native algorithms show data once and have it read by all.
bool hasNativeShape(std::string_view name) { return name.ends_with("_pull"); }

double ask(std::vector<Channel>& ranks, const std::string& command) {
  for (Channel& rank : ranks) rank.send(command);
  double largest = 0;
  for (Channel& rank : ranks) {
    std::string reply;
    if (!rank.receive(reply)) throw std::runtime_error("a rank died in " + command);
    if (reply.rfind("ok ", 0) != 0) throw std::runtime_error(reply);
    largest = std::max(largest, std::stod(reply.substr(3)));
  }
  return largest;
}

struct Contestant {
  std::string plan;  // empty: the native algorithm
  std::vector<double> seconds;

  double median() {
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }
};

void measure(std::vector<Channel>& ranks, Op op, size_t bytes, const SweepOptions& options,
             std::vector<Contestant>& contestants) {
  const std::string point = std::string(info(op).name) + ' ' + std::to_string(bytes) + ' ';
  const auto time = [&](long warmup, long iterations) {
    return ask(ranks, "time " + point + std::to_string(warmup) + ' ' + std::to_string(iterations));
  };
  for (int turn = 0; turn <= options.repeats; ++turn) {
    for (Contestant& contestant : contestants) {
      ask(ranks, "plan " + (contestant.plan.empty() ? "none" : contestant.plan));
      if (turn == 0) {
        ask(ranks, "check " + point);
        contestant.seconds = {time(1, 3)};
        continue;
      }
      const double estimate = contestant.seconds.back();
      const long iterations =
          std::clamp(std::lround(options.minSeconds / std::max(estimate, 1e-8)), 3L, 100000L);
      contestant.seconds.push_back(time(iterations / 10 + 1, iterations));
    }
  }
  for (Contestant& contestant : contestants) contestant.seconds.erase(contestant.seconds.begin());
}

}  // namespace

bool sweepPlans(std::vector<Channel>& ranks, const SweepOptions& options, bool shape) try {
  const int n = static_cast<int>(ranks.size());
  std::printf(
      "%d ranks; microseconds per call, median (fastest) of %d turns, beside the native "
      "algorithm\n",
      n, options.repeats);
  for (const Op op : options.ops) {
    std::vector<Contestant> contestants(1);
    for (const BuiltIn& plan : ctran::plan::library()) {
      if (nameOf(plan.kind) != info(op).name || (shape && !hasNativeShape(plan.name))) continue;
      if (plan.whyNot({n, 0, 1, 1, 1}).empty()) contestants.push_back({std::string(plan.name), {}});
    }
    if (contestants.size() == 1) continue;
    std::printf("\n%-34s %10s %11s %11s %9s\n", std::string(info(op).name).c_str(), "bytes", "us",
                "fastest", "of native");
    for (const size_t bytes : options.sizes) {
      measure(ranks, op, bytes, options, contestants);
      const double native = contestants[0].median();
      const size_t block = Shape(op, bytes, n).count * sizeof(float);
      for (Contestant& contestant : contestants) {
        const double median = contestant.median();
        std::printf("%-34s %10zu %11.2f %11.2f %9.2f\n",
                    contestant.plan.empty() ? "native" : contestant.plan.c_str(), bytes,
                    median * 1e6, contestant.seconds.front() * 1e6, median / native);
        if (!options.json) continue;
        size_t units = 1;
        if (!contestant.plan.empty()) {
          units = ctran::unitsOf(ctran::plan::makePlan(contestant.plan, {n}), block / sizeof(float),
                                 sizeof(float));
        }
        std::fprintf(options.json,
                     R"({"plan": "%s", "op": "%s", "ranks": %d, "bytes": %zu, "units": %zu, )"
                     R"("seconds": %.9f, "fastest": %.9f})"
                     "\n",
                     contestant.plan.c_str(), std::string(info(op).name).c_str(), n, block, units,
                     median, contestant.seconds.front());
        std::fflush(options.json);
      }
      std::fflush(stdout);
    }
  }
  return true;
} catch (const std::exception& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", error.what());
  return false;
}

}  // namespace bench
