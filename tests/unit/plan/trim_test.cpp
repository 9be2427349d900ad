// Credits that order nothing.
#include "ctran/plan/trim.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ctran/plan/library.h"
#include "ctran/plan/verify.h"

namespace ctran::plan {
namespace {

size_t creditsOf(const Plan& plan) {
  return std::count_if(plan.channels.begin(), plan.channels.end(),
                       [](const Channel& channel) { return channel.credits > 0; });
}

TEST(Trim, NeedsNoCreditsWhereDataComesBack) {
  for (const char* name : {"all_reduce.one_shot", "all_reduce.two_shot", "all_gather.direct",
                           "reduce_scatter.direct", "all_to_all.direct"}) {
    for (const int ranks : {2, 3, 8}) {
      SCOPED_TRACE(std::string(name) + ":" + std::to_string(ranks));
      const Plan plan = makePlan(name, {ranks});
      const Plan left = withoutIdleCredits(plan);
      EXPECT_GT(creditsOf(plan), 0u);
      EXPECT_EQ(creditsOf(left), 0u);
      EXPECT_TRUE(verify(left).ok()) << verify(left).toText();
    }
  }
}

TEST(Trim, KeepsThoseThatAreNeeded) {
  // Nothing comes back to the root, so nothing else tells it that its slots have been read.
  for (const char* name : {"broadcast.direct", "broadcast.chain"}) {
    const Plan plan = makePlan(name, {3});
    EXPECT_EQ(withoutIdleCredits(plan), plan) << name;
  }
}

TEST(Trim, LeavesEveryPlanRight) {
  for (const BuiltIn& builtIn : library()) {
    const Plan plan = makePlan(builtIn.name, {4, 0, 1, 1, 2});
    const Report before = verify(plan), after = verify(withoutIdleCredits(plan));
    EXPECT_TRUE(after.ok()) << plan.name << "\n" << after.toText();
    EXPECT_EQ(after.properties.inPlaceSafe, before.properties.inPlaceSafe) << plan.name;
    EXPECT_EQ(after.properties.flat, before.properties.flat) << plan.name;
    EXPECT_EQ(after.properties.rankOrder, before.properties.rankOrder) << plan.name;
  }
}

TEST(Trim, CutsNoFinerThanThePlanDoes) {
  for (const BuiltIn& builtIn : library()) {
    const Plan plan = makePlan(builtIn.name, {4, 0, 1, 1, 2});
    Plan fine = plan;
    fine.chunks *= 6;
    fine.scratch *= 6;
    for (auto& lanes : fine.programs) {
      for (Lane& lane : lanes) {
        for (Step& step : lane) {
          if (!step.moves()) continue;
          step.count *= 6;
          step.part *= 6;
          for (Place& place : step.from) place.index *= 6;
          for (Place& place : step.to) place.index *= 6;
        }
      }
    }
    EXPECT_TRUE(verify(fine).ok()) << plan.name;
    EXPECT_EQ(withLargestChunks(fine), withLargestChunks(plan)) << plan.name;
    EXPECT_TRUE(verify(withLargestChunks(plan)).ok()) << plan.name;
  }
}

TEST(Trim, SumsAreInTheOrderOfTheRanks) {
  // Each begins with what it has itself.
  Plan plan = makePlan("all_reduce.two_shot", {4});
  for (int r = 0; r < plan.ranks; ++r) {
    for (Lane& lane : plan.programs[r]) {
      for (Step& step : lane) {
        if (step.from.size() > 1)
          std::rotate(step.from.begin(), step.from.begin() + r, step.from.end());
      }
    }
  }
  ASSERT_FALSE(verify(plan).properties.rankOrder);
  const Report report = verify(withSumsInRankOrder(plan));
  EXPECT_TRUE(report.ok() && report.properties.rankOrder) << report.toText();
}

}  // namespace
}  // namespace ctran::plan
