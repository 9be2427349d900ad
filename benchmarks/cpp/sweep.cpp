#include "benchmarks/cpp/sweep.h"

#include <algorithm>
#include <cmath>

namespace bench {
namespace {

std::string readable(size_t bytes) {
  for (const auto& [unit, name] : {std::pair{size_t(1) << 20, "M"}, {size_t(1) << 10, "K"}}) {
    if (bytes >= unit && bytes % unit == 0) return std::to_string(bytes / unit) + name;
  }
  return std::to_string(bytes);
}

/// Seconds per call, one per repeat, sorted. The number of calls follows from short trial runs.
std::vector<double> measure(std::vector<Channel>& ranks, Op op, size_t bytes,
                            const SweepOptions& options) {
  const std::string point = std::string(info(op).name) + ' ' + std::to_string(bytes) + ' ';
  const auto time = [&](long warmup, long iterations) {
    return ask(ranks, "time " + point + std::to_string(warmup) + ' ' + std::to_string(iterations));
  };
  ask(ranks, "check " + point);
  double estimate = time(1, 3);
  const auto calls = [&](double seconds) {
    return std::clamp(std::lround(seconds / std::max(estimate, 1e-8)), 5L, 200000L);
  };
  estimate = time(1, calls(options.minSeconds / 4));
  std::vector<double> samples;
  for (int r = 0; r < options.repeats; ++r) {
    const long iterations = calls(options.minSeconds);
    samples.push_back(time(iterations / 10 + 2, iterations));
  }
  std::sort(samples.begin(), samples.end());
  return samples;
}

void writeJson(std::FILE* file, const SweepOptions& options, Op op, size_t bytes, size_t ranks,
               const std::vector<double>& samples) {
  std::fprintf(file, R"({"library": "%s", "ranks": %zu, "op": "%s", "bytes": %zu, "us": %.4f, )",
               options.library.c_str(), ranks, std::string(info(op).name).c_str(), bytes,
               samples[samples.size() / 2] * 1e6);
  for (size_t i = 0; i < samples.size(); ++i) {
    std::fprintf(file, "%s%.4f", i ? ", " : R"("samples_us": [)", samples[i] * 1e6);
  }
  std::fprintf(file, "]}\n");
  std::fflush(file);
}

}  // namespace

bool sweep(std::vector<Channel>& ranks, const SweepOptions& options) try {
  std::printf("%s, %zu ranks; microseconds per call, median (fastest, slowest) of %d repeats\n",
              options.library.c_str(), ranks.size(), options.repeats);
  for (Op op : options.ops) {
    const std::vector<size_t> sizes = op == Op::Barrier ? std::vector<size_t>{0} : options.sizes;
    std::printf("\n%-15s %8s %11s %11s %11s %9s\n", std::string(info(op).name).c_str(), "bytes",
                "us", "fastest", "slowest", "GB/s");
    for (size_t bytes : sizes) {
      const std::vector<double> samples = measure(ranks, op, bytes, options);
      const double median = samples[samples.size() / 2];
      std::printf("%15s %8s %11.2f %11.2f %11.2f %9.2f\n", "", readable(bytes).c_str(),
                  median * 1e6, samples.front() * 1e6, samples.back() * 1e6,
                  double(bytes) / median / 1e9);
      std::fflush(stdout);
      if (options.json) writeJson(options.json, options, op, bytes, ranks.size(), samples);
    }
  }
  return true;
} catch (const std::exception& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", error.what());
  return false;
}

}  // namespace bench
