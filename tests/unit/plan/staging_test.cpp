// Plans that reach the buffers of others' callers, for executors that cannot, or that nobody
// proved.
#include "ctran/plan/staging.h"

#include <gtest/gtest.h>

#include "ctran/plan/builder.h"
#include "ctran/plan/fence.h"
#include "ctran/plan/library.h"
#include "ctran/plan/verify.h"
#include "tests/unit/plan/adversary.h"

namespace ctran::plan {
namespace {

/// Two ranks of two lanes: each reads the other's block from its input, and puts it back into the
/// other's output, where all is as it should be.
Plan reachingPlan(bool inPlace) {
  Plan plan;
  plan.name = "reaching";
  plan.kind = CollectiveKind::AllGather;
  plan.ranks = 2;
  plan.chunks = 2;
  plan.inPlace = inPlace;
  for (int rank = 0; rank < 2; ++rank) {
    for (int lane = 0; lane < 2; ++lane)
      plan.channels.push_back({{rank, lane}, {1 - rank, lane}, 0});
  }
  const auto own = [&](int rank, int lane) {
    return inPlace ? Place{rank, Buffer::Output, rank * 2 + lane}
                   : Place{rank, Buffer::Input, lane};
  };
  for (int rank = 0; rank < 2; ++rank) {
    plan.programs.emplace_back();
    for (int lane = 0; lane < 2; ++lane) {
      Step hello, put, done;
      hello.signals = {rank * 2 + lane};
      put.waits = {{(1 - rank) * 2 + lane, 1}};
      put.from = {own(rank, lane)};
      put.to = {{1 - rank, Buffer::Output, rank * 2 + lane}};
      if (!inPlace) put.to.push_back({rank, Buffer::Output, rank * 2 + lane});
      put.part = lane;
      put.signals = hello.signals;
      done.waits = put.waits;
      plan.programs[rank].push_back({hello, put, done});
    }
  }
  return plan;
}

TEST(Staging, LeavesPlansAloneThatReachNobodysBuffers) {
  for (const char* name : {"all_reduce.ring", "all_gather.direct_pull", "broadcast.chain"}) {
    const Plan plan = makePlan(name, {3});
    EXPECT_EQ(staged(plan), plan) << name;
  }
}

TEST(Staging, ReachesScratchInPlaceOfBuffers) {
  for (const bool inPlace : {false, true}) {
    SCOPED_TRACE(inPlace);
    const Plan plan = reachingPlan(inPlace);
    ASSERT_TRUE(verify(plan).ok()) << verify(plan).toText();
    const Plan made = staged(plan);
    EXPECT_EQ(made.scratch, 4);
    EXPECT_FALSE(needsOf(made).remoteOutput);
    EXPECT_EQ(made.channels, plan.channels) << "lanes meet without need";
    EXPECT_TRUE(verify(made).ok()) << verify(made).toText() << toText(made);
    for (uint64_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(runUnkindly(made, 4, seed), "");
  }
}

/// All-gather of two ranks, in place; the first lanes speak with the other rank for the second,
/// too.
Plan spokenForPlan() {
  Plan plan;
  plan.name = "spoken for";
  plan.kind = CollectiveKind::AllGather;
  plan.ranks = 2;
  plan.chunks = 2;
  plan.inPlace = true;
  for (int rank = 0; rank < 2; ++rank) {
    plan.channels.push_back({{rank, 0}, {1 - rank, 0}, 0});
    plan.channels.push_back({{rank, 0}, {rank, 1}, 0});
    plan.channels.push_back({{rank, 1}, {rank, 0}, 0});
  }
  for (int rank = 0; rank < 2; ++rank) {
    const int out = rank * 3, in = (1 - rank) * 3, there = rank * 3 + 1, back = rank * 3 + 2;
    const auto get = [&](int lane) {
      Step step;
      step.from = {{1 - rank, Buffer::Output, (1 - rank) * 2 + lane}};
      step.to = {{rank, Buffer::Output, (1 - rank) * 2 + lane}};
      step.part = lane;
      return step;
    };
    Step hello, heard, first = get(0), second = get(1), bye, end;
    hello.signals = {out};
    heard.waits = {{in, 1}};
    heard.signals = {there};
    second.waits = {{there, 1}};
    second.signals = {back};
    bye.waits = {{back, 1}};
    bye.signals = {out};
    end.waits = {{in, 1}};
    plan.programs.push_back({{hello, heard, first, bye, end}, {second}});
  }
  return plan;
}

TEST(Staging, MakesLanesMeetWhereTheirSignalsAreNotEnough) {
  const Plan plan = spokenForPlan();
  ASSERT_TRUE(verify(plan).ok()) << verify(plan).toText();
  const Plan made = staged(plan);
  EXPECT_GT(made.channels.size(), plan.channels.size());
  EXPECT_TRUE(verify(made).ok()) << verify(made).toText() << toText(made);
  for (uint64_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(runUnkindly(made, 4, seed), "");
}

TEST(Fence, LetsNobodyEndBeforeAllHave) {
  Plan plan = reachingPlan(false);
  for (auto& lanes : plan.programs) {
    for (Lane& lane : lanes) {
      lane[1].signals.clear();  // the other rank is not told that its output has been written
      lane.pop_back();
    }
  }
  const Report report = verify(plan);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.findings[0].words, std::vector<std::string>{"returned"}) << report.toText();
  const Plan made = fenced(plan);
  EXPECT_TRUE(verify(made).ok()) << verify(made).toText() << toText(made);
  for (uint64_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(runUnkindly(made, 4, seed), "");
  for (const auto& lanes : fenced(makePlan("all_reduce.ring", {1})).programs) {
    for (const Lane& lane : lanes) EXPECT_TRUE(lane.empty() || lane.back().moves());
  }
}

}  // namespace
}  // namespace ctran::plan
