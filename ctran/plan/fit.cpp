#include "ctran/plan/fit.h"

#include <algorithm>
#include <cmath>

#include "ctran/base/error.h"

namespace ctran::plan {
namespace {

double misfit(const std::vector<Sample>& samples, const Machine& machine) {
  double sum = 0;
  for (const Sample& sample : samples) {
    const double said = simulate(sample.plan, machine, sample.bytes, sample.units).seconds;
    sum += std::abs(std::log(said / sample.seconds));
  }
  return sum / static_cast<double>(samples.size());
}

}  // namespace

Fit compare(const std::vector<Sample>& samples, const Machine& machine) {
  if (samples.empty()) throw Error(ErrorKind::InvalidArgument, "there are no measured times");
  Fit fit;
  fit.machine = machine;
  std::vector<double> sizes;
  for (const Sample& sample : samples) {
    if (!(sample.seconds > 0)) {
      throw Error(ErrorKind::InvalidArgument, "measured times have to be positive");
    }
    const double said = simulate(sample.plan, machine, sample.bytes, sample.units).seconds;
    fit.errors.push_back(said / sample.seconds - 1);
    sizes.push_back(std::abs(fit.errors.back()));
  }
  std::nth_element(sizes.begin(), sizes.begin() + static_cast<int64_t>(sizes.size() / 2),
                   sizes.end());
  fit.median = sizes[sizes.size() / 2];
  return fit;
}

Fit fit(const std::vector<Sample>& samples, const Machine& start) {
  compare(samples, start);  // throws where something is wrong with them
  Machine machine = start;
  std::vector<double*> costs = {&machine.local.latency};
  if (machine.sharedMemory) {
    SharedMemory& shared = *machine.sharedMemory;
    if (shared.arrival <= 0) shared.arrival = 1e-6;
    costs.insert(costs.end(), {&shared.readBandwidth, &shared.writeBandwidth,
                               &shared.signalOverhead, &shared.arrival});
  } else {
    costs.insert(costs.end(), {&machine.local.overhead, &machine.local.bandwidth});
  }
  costs.insert(costs.end(),
               {&machine.copyBandwidth, &machine.reduceBandwidth, &machine.stepOverhead,
                &machine.start, &machine.memoryBandwidth, &machine.cacheBytes});
  // What is zero cannot be moved in factors.
  if (machine.start <= 0) machine.start = 1e-6;
  if (machine.cacheBytes <= 0) machine.cacheBytes = 1 << 20;
  double least = misfit(samples, machine);
  for (const double factor : {4.0, 2.0, 1.4, 1.2, 1.1, 1.05, 1.02}) {
    for (int rounds = 0; rounds < 6; ++rounds) {
      bool moved = false;
      for (double* cost : costs) {
        for (const double by : {factor, 1 / factor}) {
          const double before = *cost;
          *cost = before * by;
          const double now = misfit(samples, machine);
          if (now < least) {
            least = now;
            moved = true;
            break;
          }
          *cost = before;
        }
      }
      if (!moved) break;
    }
  }
  return compare(samples, machine);
}

}  // namespace ctran::plan
