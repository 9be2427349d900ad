#include "benchmarks/cpp/plans.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "ctran/collective/plan/run.h"
#include "ctran/plan/library.h"

namespace bench {
namespace {

using ctran::plan::BuiltIn;

/// In shared memory the native algorithms show data once and have it read by all; two ranks, to
/// which it costs no more, make sums in one shot.
bool hasNativeShape(std::string_view name, int ranks) {
  return name.ends_with("_pull") && (name != "all_reduce.one_shot_pull" || ranks == 2) &&
         (name != "all_reduce.two_shot_pull" || ranks != 2);
}

/// A plan, or the native algorithm, for one operation and size.
struct Point {
  Op op;
  size_t bytes;
  std::string plan;  // empty: the native algorithm
  double estimate = 0;
  std::vector<double> seconds;

  double median() {
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }
};

std::vector<Point> pointsOf(const SweepOptions& options, int ranks, bool shape) {
  std::vector<Point> points;
  for (const Op op : options.ops) {
    for (const size_t bytes : options.sizes) {
      std::vector<Point> here{{op, bytes, {}, 0, {}}};
      for (const BuiltIn& plan : ctran::plan::library()) {
        if (nameOf(plan.kind) != info(op).name || (shape && !hasNativeShape(plan.name, ranks)))
          continue;
        if (plan.whyNot({ranks, 0, 1, 1, 1}).empty()) {
          here.push_back({op, bytes, std::string(plan.name), 0, {}});
        }
      }
      if (here.size() > 1) points.insert(points.end(), here.begin(), here.end());
    }
  }
  return points;
}

/// One turn; the first one checks the result.
void measure(std::vector<Channel>& ranks, const SweepOptions& options, Point& point) {
  const std::string what = std::string(info(point.op).name) + ' ' + std::to_string(point.bytes);
  const auto time = [&](long warmup, long iterations) {
    return ask(ranks,
               "time " + what + ' ' + std::to_string(warmup) + ' ' + std::to_string(iterations));
  };
  ask(ranks, "plan " + (point.plan.empty() ? "none" : point.plan));
  if (point.estimate == 0) {
    ask(ranks, "check " + what);
    point.estimate = time(1, 3);
    return;
  }
  const long iterations =
      std::clamp(std::lround(options.minSeconds / std::max(point.estimate, 1e-8)), 3L, 100000L);
  point.seconds.push_back(time(iterations / 10 + 1, iterations));
  point.estimate = std::min(point.estimate, point.seconds.back());
}

void print(Point& point, double native, double fastestNative) {
  const double median = point.median(), fastest = point.seconds.front();
  std::printf("%-34s %10zu %11.2f %9.2f %11.2f %9.2f\n",
              point.plan.empty() ? std::string(info(point.op).name).c_str() : point.plan.c_str(),
              point.bytes, median * 1e6, median / native, fastest * 1e6, fastest / fastestNative);
}

void writeJson(std::FILE* file, const Point& point, int ranks) {
  const size_t count = Shape(point.op, point.bytes, ranks).count;
  const size_t units =
      point.plan.empty()
          ? 1
          : ctran::unitsOf(ctran::plan::makePlan(point.plan, {ranks}), count, sizeof(float));
  std::fprintf(file,
               R"({"plan": "%s", "op": "%s", "ranks": %d, "bytes": %zu, "units": %zu, )"
               R"("seconds": %.9f, "fastest": %.9f})"
               "\n",
               point.plan.c_str(), std::string(info(point.op).name).c_str(), ranks,
               count * sizeof(float), units, point.seconds[point.seconds.size() / 2],
               point.seconds.front());
}

}  // namespace

void preferNativeShape(int ranks) {
  const std::string sums = ranks == 2 ? "direct" : "two_phase";
  const std::string names = "all_reduce=" + sums +
                            ",all_gather=rounds,reduce_scatter=rounds,all_to_all=rounds,"
                            "broadcast=rounds";
  setenv("CTRAN_ALGORITHM", names.c_str(), 0);
}

bool sweepPlans(std::vector<Channel>& ranks, const SweepOptions& options, bool shape) try {
  const int n = static_cast<int>(ranks.size());
  std::vector<Point> points = pointsOf(options, n, shape);
  // All in turns, so that noise hits all.
  for (int turn = 0; turn <= options.repeats; ++turn) {
    for (Point& point : points) measure(ranks, options, point);
  }
  std::printf(
      "%d ranks; microseconds per call, median and fastest of %d turns, beside the native "
      "algorithm\n\n%-34s %10s %11s %9s %11s %9s\n",
      n, options.repeats, "", "bytes", "median", "of native", "fastest", "of native");
  double native = 0, fastest = 0;
  for (Point& point : points) {
    if (point.plan.empty()) {
      native = point.median();
      fastest = point.seconds.front();
    }
    print(point, native, fastest);
    if (options.json) writeJson(options.json, point, n);
  }
  return true;
} catch (const std::exception& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", error.what());
  return false;
}

}  // namespace bench
