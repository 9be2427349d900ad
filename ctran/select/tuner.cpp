#include "ctran/select/tuner.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "ctran/base/clock.h"
#include "ctran/base/error.h"

namespace ctran {
namespace {

using Run = std::function<void(const Collective&)>;

/// Bytes that a rank contributes. Beyond, what is best no longer depends on the size.
constexpr size_t kSizes[] = {256,      1 << 10,   4 << 10,   16 << 10,
                             64 << 10, 128 << 10, 512 << 10, 2 << 20};
constexpr int kBatches = 5;
/// How many times as long as asked for tuning may take; then the rest stays unmeasured.
constexpr double kOverrun = 1.5;

struct Point {
  CollectiveKind kind;
  size_t bytes;
  std::vector<std::string> candidates;
};

std::vector<Point> pointsFor(const Tunable& selector) {
  std::vector<Point> points;
  for (int k = 0; k <= static_cast<int>(CollectiveKind::AllToAll); ++k) {
    const auto kind = static_cast<CollectiveKind>(k);
    if (kind == CollectiveKind::Barrier) continue;  // which has no size; nor has all_to_all_v
    for (const size_t bytes : kSizes) {
      Point point{kind, bytes, selector.candidates(kind, bytes)};
      if (point.candidates.size() > 1) points.push_back(std::move(point));
    }
  }
  return points;
}

/// A call in which every rank contributes that many bytes, on memory of its own.
class Sample {
 public:
  Sample(const Point& point, int size)
      : input_(point.bytes + 64), output_(point.bytes * size + 64) {
    c_.kind = point.kind;
    c_.type = DataType::Float32;
    const size_t elements = std::max<size_t>(point.bytes / sizeof(float), 1);
    const bool divided = point.kind == CollectiveKind::ReduceScatter ||
                         point.kind == CollectiveKind::ReduceScatterV ||
                         point.kind == CollectiveKind::Scatter ||
                         point.kind == CollectiveKind::AllToAll;
    c_.count = divided ? std::max<size_t>(elements / size, 1) : elements;
    c_.input = input_.data();
    c_.output = output_.data();
    if (divided && input_.size() < c_.count * size * sizeof(float)) {
      input_.resize(c_.count * size * sizeof(float));
      c_.input = input_.data();
    }
    if (point.kind == CollectiveKind::AllGatherV) {
      for (int r = 0; r < size; ++r) {
        c_.outputs.push_back({output_.data() + r * c_.blockBytes(), c_.count});
      }
    }
    if (point.kind == CollectiveKind::ReduceScatterV) {
      for (int r = 0; r < size; ++r) {
        c_.inputs.push_back({input_.data() + r * c_.blockBytes(), c_.count});
      }
    }
  }
  const Collective& call() const { return c_; }

 private:
  std::vector<std::byte> input_, output_;
  Collective c_;
};

/// The largest over all ranks.
std::vector<double> largest(std::vector<double> values, const Run& run) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.type = DataType::Float64;
  c.op.kind = ReduceKind::Max;
  c.count = values.size();
  c.output = reinterpret_cast<std::byte*>(values.data());
  c.input = c.output;
  run(c);
  return values;
}

double secondsOf(const Collective& call, long times, const Run& run) {
  const int64_t begin = nowNanos();
  for (long i = 0; i < times; ++i) run(call);
  return static_cast<double>(nowNanos() - begin) * 1e-9;
}

/// Microseconds of each candidate. They take turns, so that noise hits all alike.
std::vector<double> measure(const Point& point, int size, Tunable& selector, const Run& run,
                            double seconds) {
  const Sample sample(point, size);
  const size_t n = point.candidates.size();
  std::vector<long> times(n);
  std::vector<double> estimates(n);
  for (size_t i = 0; i < n; ++i) {
    selector.force(point.kind, point.candidates[i]);
    secondsOf(sample.call(), 3, run);
    estimates[i] = secondsOf(sample.call(), 3, run) / 3;
  }
  selector.force(point.kind, {});
  estimates = largest(std::move(estimates), run);
  const double turn = seconds / static_cast<double>(n) / (kBatches + 1);
  for (size_t i = 0; i < n; ++i) {
    times[i] = std::clamp(std::lround(turn / std::max(estimates[i], 1e-7)), 2L, 100000L);
  }
  std::vector<std::vector<double>> batches(n);
  for (int b = 0; b < kBatches; ++b) {
    for (size_t i = 0; i < n; ++i) {
      selector.force(point.kind, point.candidates[i]);
      batches[i].push_back(secondsOf(sample.call(), times[i], run) / static_cast<double>(times[i]));
    }
  }
  selector.force(point.kind, {});
  std::vector<double> micros;
  for (auto& batch : batches) {
    std::sort(batch.begin(), batch.end());
    micros.push_back(batch[kBatches / 2] * 1e6);
  }
  return largest(std::move(micros), run);
}

}  // namespace

TuningTable tune(TuningTable table, Tunable& selector, const Run& run, const TuneOptions& options) {
  if (!(options.seconds >= 0)) {  // not a number is neither
    throw Error(ErrorKind::InvalidArgument, "tune: the time must not be negative");
  }
  selector.use({});
  const int size = table.ranks;
  const std::vector<Point> points = size > 1 ? pointsFor(selector) : std::vector<Point>{};
  const int64_t begin = nowNanos();
  for (size_t i = 0; i < points.size(); ++i) {
    const Point& point = points[i];
    // On a machine that is busy with other things all takes longer than it was estimated to.
    const double elapsed = largest({static_cast<double>(nowNanos() - begin) * 1e-9}, run)[0];
    if (elapsed > kOverrun * options.seconds) break;
    const double left = std::max(options.seconds - elapsed, 0.0);
    if (options.progress) {
      options.progress(
          static_cast<double>(i) / static_cast<double>(points.size()),
          std::string(nameOf(point.kind)) + ", " + std::to_string(point.bytes) + " bytes");
    }
    const std::vector<double> micros =
        measure(point, size, selector, run, left / static_cast<double>(points.size() - i));
    TuningTable::Entry entry{point.kind, point.bytes, {}};
    for (size_t j = 0; j < micros.size(); ++j) {
      entry.micros.emplace_back(point.candidates[j], micros[j]);
    }
    std::sort(entry.micros.begin(), entry.micros.end(), [](const auto& a, const auto& b) {
      return std::tie(a.second, a.first) < std::tie(b.second, b.first);
    });
    table.entries.push_back(std::move(entry));
  }
  if (options.progress) options.progress(1, "done");
  selector.use(table);
  return table;
}

}  // namespace ctran
