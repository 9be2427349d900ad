// The cost model, fitted to times.
#include "ctran/plan/fit.h"

#include <gtest/gtest.h>

#include "ctran/plan/library.h"
#include "tests/unit/support/ranks.h"

namespace ctran::plan {
namespace {

using testing::errorOf;

/// What a known machine needs.
std::vector<Sample> samplesOf(const Machine& machine) {
  std::vector<Sample> samples;
  for (const char* name : {"all_reduce.ring", "all_reduce.two_shot_pull", "all_gather.direct",
                           "broadcast.binomial", "all_to_all.bruck"}) {
    for (const size_t bytes :
         {size_t{1} << 10, size_t{1} << 16, size_t{1} << 20, size_t{1} << 24}) {
      Sample sample{makePlan(name, {4}), bytes, 4, 0};
      sample.seconds = simulate(sample.plan, machine, bytes, sample.units).seconds;
      samples.push_back(std::move(sample));
    }
  }
  return samples;
}

TEST(Fit, FindsAMachineThatSaysTheSame) {
  Machine machine;
  machine.local = {3e-7, 1e-7, 21e9};
  machine.copyBandwidth = 13e9;
  machine.reduceBandwidth = 17e9;
  machine.stepOverhead = 4e-8;
  machine.start = 2e-6;
  machine.cacheBytes = 5e6;
  machine.memoryBandwidth = 4e9;
  machine.lanesInTurns = true;
  const auto samples = samplesOf(machine);
  Machine start;
  start.lanesInTurns = true;
  EXPECT_GT(compare(samples, start).median, 0.2);
  const Fit found = fit(samples, start);
  EXPECT_LT(found.median, 0.05);
  EXPECT_EQ(found.errors.size(), samples.size());
  // And of what it has not seen.
  Sample other{makePlan("all_reduce.halving_doubling", {4}), size_t{1} << 18, 4, 0};
  other.seconds = simulate(other.plan, machine, other.bytes, other.units).seconds;
  EXPECT_LT(compare({other}, found.machine).median, 0.15);
  // A machine is what its JSON says.
  const Machine read = machineFromJson(toJson(found.machine));
  EXPECT_EQ(compare(samples, read).median, found.median);
}

TEST(Fit, FindsWhatSharedMemoryCosts) {
  Machine machine;
  machine.local.latency = 2e-7;
  machine.lanesInTurns = true;
  machine.sharedMemory = SharedMemory{6e9, 9e9, 9e-8, 3e-6};
  machine.copyBandwidth = 14e9;
  machine.start = 1e-6;
  const auto samples = samplesOf(machine);
  Machine start;
  start.lanesInTurns = true;
  start.sharedMemory.emplace();
  const Fit found = fit(samples, start);
  EXPECT_LT(found.median, 0.05);
  const Machine read = machineFromJson(toJson(found.machine));
  ASSERT_TRUE(read.sharedMemory);
  EXPECT_EQ(compare(samples, read).median, found.median);
}

TEST(Fit, NeedsTimes) {
  EXPECT_EQ(errorOf([] { fit({}, {}); }).kind(), ErrorKind::InvalidArgument);
  const Sample bad{makePlan("all_reduce.ring", {2}), 1, 1, 0};
  EXPECT_EQ(errorOf([&] { fit({bad}, {}); }).kind(), ErrorKind::InvalidArgument);
}

}  // namespace
}  // namespace ctran::plan
