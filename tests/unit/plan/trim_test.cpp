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

}  // namespace
}  // namespace ctran::plan
