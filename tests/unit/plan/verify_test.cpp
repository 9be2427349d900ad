// The verifier accepts every plan of the library, and rejects broken ones for the right reason.
#include "ctran/plan/verify.h"

#include <gtest/gtest.h>

#include "ctran/base/clock.h"
#include "ctran/plan/builder.h"
#include "ctran/plan/library.h"
#include "tests/unit/support/ranks.h"

namespace ctran::plan {
namespace {

using Kind = Finding::Kind;
using testing::errorOf;

/// The ways to make a plan of the library for so many ranks; a few of them where they take long.
std::vector<Recipe> recipesFor(int ranks) {
  const bool all = ranks <= 12 || testing::testsEverything();
  std::vector<Recipe> recipes{{ranks}};
  if (all) recipes.push_back({ranks, ranks - 1, 2, 2, 1});
  for (int g = 2; g <= ranks; ++g) {
    if (ranks % g == 0 && (all || g * g == ranks)) recipes.push_back({ranks, ranks / 2, 1, 1, g});
  }
  return recipes;
}

void verifyLibrary(const std::vector<int>& sizes) {
  for (const BuiltIn& builtIn : library()) {
    for (const int ranks : sizes) {
      for (const Recipe& recipe : recipesFor(ranks)) {
        if (!builtIn.whyNot(recipe).empty()) continue;
        const Plan plan = builtIn.make(recipe);
        EXPECT_EQ(plan.name, builtIn.name);
        EXPECT_EQ(plan.kind, builtIn.kind);
        const Report report = verify(plan);
        ASSERT_TRUE(report.ok()) << plan.name << " over " << ranks << "\n" << report.toText();
        EXPECT_TRUE(report.properties.inPlaceSafe) << plan.name;
        EXPECT_TRUE(report.properties.separateFinals) << plan.name;
      }
    }
  }
}

TEST(Library, EveryPlanIsRight) {
  std::vector<int> sizes{1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 33, 64};
  if (testing::kSanitizer) sizes = {1, 2, 3, 5, 8};
  if (testing::testsEverything()) {
    sizes.clear();
    for (int n = 1; n <= 64; ++n) sizes.push_back(n);
  }
  verifyLibrary(sizes);
}

TEST(Library, DirectPlansReduceInRankOrder) {
  for (const char* name : {"all_reduce.one_shot", "all_reduce.two_shot", "all_reduce.two_shot_pull",
                           "reduce_scatter.direct", "reduce_scatter.direct_pull"}) {
    const Report report = verify(makePlan(name, {5}));
    EXPECT_TRUE(report.properties.rankOrder) << name;
    EXPECT_TRUE(report.properties.flat) << name;
  }
  EXPECT_FALSE(verify(makePlan("all_reduce.ring", {3})).properties.rankOrder);
  EXPECT_FALSE(verify(makePlan("all_reduce.recursive_doubling", {4})).properties.flat);
}

TEST(Library, SaysWhyItHasNoPlan) {
  EXPECT_NE(std::string(errorOf([] { makePlan("all_reduce.magic", {4}); }).what())
                .find("all_reduce.ring"),
            std::string::npos);
  EXPECT_NE(std::string(errorOf([] { makePlan("all_gather.recursive_doubling", {6}); }).what())
                .find("power of two"),
            std::string::npos);
  EXPECT_NE(std::string(errorOf([] {
                          makePlan("all_reduce.hierarchical", {6, 0, 1, 1, 4});
                        }).what())
                .find("no multiple of 4"),
            std::string::npos);
  for (const Recipe& bad : {Recipe{0}, Recipe{4, 4}, Recipe{4, 0, 0}, Recipe{4, 0, 1, 0}}) {
    EXPECT_EQ(errorOf([&] { makePlan("all_reduce.ring", bad); }).kind(),
              ErrorKind::InvalidArgument);
  }
}

TEST(Verifier, TakesUnderASecondForEightRanks) {
  if (testing::kSanitizer) GTEST_SKIP();
  const int64_t begin = nowNanos();
  for (const BuiltIn& builtIn : library()) {
    if (builtIn.kind == CollectiveKind::AllReduce) verify(builtIn.make({8, 0, 2, 2, 4}));
  }
  RecordProperty("milliseconds", static_cast<int>((nowNanos() - begin) / 1'000'000));
}

// --- Broken plans
// ---------------------------------------------------------------------------------

/// One rank puts its block into the other's scratch, and the other way round, by hand.
struct ByHand {
  Builder b{"by hand", CollectiveKind::AllGather, 2, 1};
  int data[2], credit[2];

  explicit ByHand(int credits = 1) {
    for (int r = 0; r < 2; ++r) {
      b.allocate(r, 1);
      data[r] = b.channel({r, 0}, {1 - r, 0});
      credit[r] = b.channel({1 - r, 0}, {r, 0}, credits, 1);
    }
  }
  void copyOwn(int r) { b.copy({r, 0}, b.output(r, r), b.input(r, 0)); }
  Step& put(int r, bool awaitsCredit = true, bool signals = true) {
    Step& step = b.step({r, 0});
    if (awaitsCredit) step.waits = {{credit[r], 1}};
    b.move(step, {b.scratch(1 - r, 0)}, {b.input(r, 0)});
    if (signals) step.signals = {data[r]};
    return step;
  }
  Step& take(int r, bool awaitsData = true, bool signals = true) {
    Step& step = b.step({r, 0});
    if (awaitsData) step.waits = {{data[1 - r], 1}};
    b.move(step, {b.output(r, 1 - r)}, {b.scratch(r, 0)});
    if (signals) step.signals = {credit[1 - r]};
    return step;
  }
  Plan right() {
    for (int r = 0; r < 2; ++r) {
      copyOwn(r);
      put(r);
      take(r);
    }
    return b.finish();
  }
};

/// That the plan is rejected, first for this, with a message that says so.
void expectFinding(const Plan& plan, Kind kind, const std::string& says,
                   const Limits& limits = {}) {
  const Report report = verify(plan, limits);
  ASSERT_FALSE(report.ok()) << plan.name;
  const Finding& finding = report.findings[0];
  EXPECT_EQ(finding.kind, kind) << report.toText();
  EXPECT_NE(finding.message.find(says), std::string::npos) << report.toText();
}

TEST(Verifier, AcceptsThePlanThatTheBrokenOnesComeFrom) {
  EXPECT_TRUE(verify(ByHand().right()).ok());
}

TEST(Verifier, FindsReadsThatDoNotWait) {
  ByHand h;
  for (int r = 0; r < 2; ++r) {
    h.copyOwn(r);
    h.put(r, false, false);
    h.take(r, false, false);
  }
  expectFinding(h.b.finish(), Kind::Race, "nothing orders it with the read of rank 0");
}

TEST(Verifier, FindsSlotsThatAreUsedAgainTooEarly) {
  // Right once; the second execution overwrites what the first has not read.
  ByHand h;
  for (int r = 0; r < 2; ++r) {
    h.copyOwn(r);
    h.put(r, false);
    h.take(r, true, false);
  }
  expectFinding(h.b.finish(), Kind::Race,
                "reads scratch[0] of rank 0; nothing orders it with the write");
}

TEST(Verifier, FindsOneCreditTooMany) {
  expectFinding(ByHand(2).right(), Kind::Race,
                "nothing orders it with the write of rank 1, lane 0, step 1 of execution 1");
}

TEST(Verifier, NamesTheShortestRun) {
  const Report report = verify(ByHand(2).right());
  ASSERT_FALSE(report.ok());
  // Rank 0 takes when rank 1 has put: two steps of rank 1, which may be at its next put by then.
  const std::vector<std::string> expected{"rank 0, lane 0: 3 steps", "rank 1, lane 0: 2 steps"};
  EXPECT_EQ(report.findings[0].trace, expected) << report.toText();
}

TEST(Verifier, FindsDeadlocks) {
  ByHand h;
  for (int r = 0; r < 2; ++r) {
    h.copyOwn(r);
    h.take(r);
    h.put(r);
  }
  expectFinding(h.b.finish(), Kind::Deadlock,
                "rank 0, lane 0, step 1 waits for c2 from rank 1, lane 0; rank 1, lane 0, step 1 "
                "waits for c0 from rank 0, lane 0; and so they wait for each other");
  // Without credits nobody can begin.
  expectFinding(ByHand(0).right(), Kind::Deadlock, "wait for each other");
}

TEST(Verifier, FindsUnmatchedSignals) {
  ByHand h;
  for (int r = 0; r < 2; ++r) {
    h.copyOwn(r);
    h.put(r).signals.push_back(h.data[r]);
    h.take(r);
  }
  expectFinding(h.b.finish(), Kind::Unmatched,
                "rank 0, lane 0 signals c0 2 times in an execution, rank 1, lane 0 waits for 1");
}

TEST(Verifier, FindsWrongResults) {
  ByHand swapped;
  for (int r = 0; r < 2; ++r) {
    swapped.b.copy({r, 0}, swapped.b.output(r, 1 - r), swapped.b.input(r, 0));
    swapped.put(r);
    Step& take = swapped.take(r);
    take.to = {swapped.b.output(r, r)};
  }
  expectFinding(swapped.b.finish(), Kind::WrongResult,
                "output[0] of rank 0 is 1[0] instead of 0[0]");

  ByHand lacking;
  for (int r = 0; r < 2; ++r) {
    lacking.put(r);
    lacking.take(r);
  }
  expectFinding(lacking.b.finish(), Kind::WrongResult,
                "output[0] of rank 0 is nothing instead of 0[0] (nobody wrote it)");

  Builder twice("twice", CollectiveKind::AllReduce, 1, 1);
  Step& step = twice.step({0, 0});
  twice.move(step, {twice.output(0, 0)}, {twice.input(0, 0), twice.input(0, 0)});
  expectFinding(twice.finish(), Kind::WrongResult, "is 0[0] + 0[0] instead of 0[0]");
}

TEST(Verifier, FindsScratchThatNobodyWrote) {
  Builder b("empty", CollectiveKind::AllReduce, 1, 1);
  b.copy({0, 0}, b.output(0, 0), b.allocate(0, 1));
  expectFinding(b.finish(), Kind::Uninitialized, "reads scratch[0] of rank 0, which nobody");
}

TEST(Verifier, FindsDataOfEarlierExecutions) {
  // Reads scratch before writing it: right data from the second execution on, of the one before.
  Builder b("stale", CollectiveKind::AllReduce, 1, 1);
  const Place slot = b.allocate(0, 1);
  b.copy({0, 0}, b.output(0, 0), slot);
  b.copy({0, 0}, slot, b.input(0, 0));
  const Report report = verify(b.finish());
  ASSERT_GE(report.findings.size(), 2u);
  EXPECT_EQ(report.findings[0].kind, Kind::Uninitialized);
  EXPECT_NE(report.toText().find("of another execution"), std::string::npos) << report.toText();
}

TEST(Verifier, FindsPartsOfOtherSizes) {
  // Part 0 goes into scratch and comes out as part 1: the same for counts that divide, else not.
  Builder b("shapes", CollectiveKind::AllReduce, 1, 2);
  const Place slot = b.allocate(0, 1);
  b.copy({0, 0}, slot, b.input(0, 0));
  b.copy({0, 0}, b.output(0, 1), slot);
  expectFinding(b.finish(), Kind::Shape,
                "reads scratch[0] of rank 0 as part 1 of a block, but part 0");
}

TEST(Verifier, FindsRanksThatAddInOtherOrders) {
  Builder b("orders", CollectiveKind::AllReduce, 2, 1);
  for (int r = 0; r < 2; ++r) {
    Step& put = b.step({r, 0});
    b.move(put, {}, {b.input(r, 0)});
    b.link({r, 0}, {1 - r, 0}).put(put);
  }
  for (int r = 0; r < 2; ++r) {
    Step& sum = b.step({r, 0});
    b.move(sum, {b.output(r, 0)}, {b.input(r, 0)});
    b.link({1 - r, 0}, {r, 0}).arrive(sum);
    b.link({1 - r, 0}, {r, 0}).release(sum);
  }
  expectFinding(b.finish(), Kind::Bits,
                "output[0] is 1[0] + 0[0] on rank 1 but 0[0] + 1[0] on rank 0");
}

TEST(Verifier, FindsPacketsThatAreNone) {
  ByHand h;
  for (int r = 0; r < 2; ++r) {
    h.copyOwn(r);
    h.put(r).packet = true;
    h.take(r);
  }
  expectFinding(h.b.finish(), Kind::Packet, "as raw data, but it holds packets");
}

TEST(Verifier, FindsPutsThatTheSignalDoesNotCover) {
  // Rank 0 puts to rank 2, and rank 1 tells rank 2: on a network the data may come later.
  Builder b("around the corner", CollectiveKind::Broadcast, 3, 1);
  b.allocate(2, 1);
  const int first = b.channel({0, 0}, {1, 0}), second = b.channel({1, 0}, {2, 0});
  Step& put = b.step({0, 0});
  b.move(put, {b.scratch(2, 0)}, {b.output(0, 0)});
  put.signals = {first};
  Step& tell = b.step({1, 0});
  tell.waits = {{first, 1}};
  tell.signals = {second};
  Step& take = b.step({2, 0});
  take.waits = {{second, 1}};
  b.move(take, {b.output(2, 0)}, {b.scratch(2, 0)});
  Plan plan = b.finish();
  expectFinding(plan, Kind::Race, "rank 2, lane 0, step 0");
  // A store has been made when its step ends, and whoever comes after that sees it. What is left is
  // that the next one may come before it was read.
  plan.programs[0][0][0].store = true;
  for (const Finding& finding : verify(plan).findings) {
    if (finding.words == std::vector<std::string>{"reads", "write"}) {
      EXPECT_NE(finding.others[0].execution, finding.execution) << finding.message;
    }
  }
}

TEST(Verifier, FindsRanksThatReturnBeforeOthersAreDone) {
  // Rank 0 puts into rank 1's output; rank 1 does not wait for it.
  Builder b("late", CollectiveKind::Broadcast, 2, 1);
  const int begun = b.channel({1, 0}, {0, 0});
  b.step({1, 0}).signals = {begun};
  Step& put = b.step({0, 0});
  put.waits = {{begun, 1}};
  b.move(put, {b.output(1, 0)}, {b.output(0, 0)});
  expectFinding(b.finish(), Kind::Race, "may have returned to its caller");
}

TEST(Verifier, FindsRanksThatMayNotHaveBegun) {
  // Rank 0 puts into rank 1's output; whether it may yet, it does not ask.
  Builder b("early", CollectiveKind::Broadcast, 2, 1);
  const int done = b.channel({0, 0}, {1, 0});
  Step& put = b.step({0, 0});
  b.move(put, {b.output(1, 0)}, {b.output(0, 0)});
  put.signals = {done};
  b.step({1, 0}).waits = {{done, 1}};
  const Report report = verify(b.finish());
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.findings[0].kind, Kind::Race);
  EXPECT_EQ(report.findings[0].words, std::vector<std::string>{"begun"});
  const Place place{1, Buffer::Output, 0};
  EXPECT_EQ(report.findings[0].place, place);
}

TEST(Verifier, KnowsWhatWorksInPlace) {
  EXPECT_TRUE(verify(ByHand().right()).properties.inPlaceSafe);
  // Rank 1 sends its block when the other's has come; in place, that has overwritten it.
  Builder rotates("rotates", CollectiveKind::AllToAll, 2, 1);
  for (int r = 0; r < 2; ++r) {
    rotates.copy({r, 0}, rotates.output(r, r), rotates.input(r, r));
    Link& in = rotates.link({1 - r, 0}, {r, 0});
    Link& out = rotates.link({r, 0}, {1 - r, 0});
    if (r == 0) {
      Step& put = rotates.step({r, 0});
      rotates.move(put, {}, {rotates.input(r, 1 - r)});
      out.put(put);
    }
    Step& take = rotates.step({r, 0});
    in.arrive(take);
    rotates.move(take, {rotates.output(r, 1 - r)}, {});
    in.release(take);
    if (r == 1) {  // sends after it has received
      Step& put = rotates.step({r, 0});
      rotates.move(put, {}, {rotates.input(r, 1 - r)});
      out.put(put);
    }
  }
  const Report report = verify(rotates.finish());
  EXPECT_TRUE(report.ok()) << report.toText();
  EXPECT_FALSE(report.properties.inPlaceSafe);
}

TEST(Verifier, ObservesLimits) {
  const Plan plan = ByHand().right();
  Limits limits;
  limits.scratch = 0;
  expectFinding(plan, Kind::Limit, "needs 1 chunks of scratch per rank, there are 0", limits);
  limits = {};
  limits.channels = 1;
  expectFinding(plan, Kind::Limit, "needs 2 channels from one rank, there are 1", limits);
  limits = {};
  limits.steps = 2;
  expectFinding(plan, Kind::Limit, "rank 0, lane 0 has 3 steps, there is room for 2", limits);
  limits = {};
  limits.remoteRead = false;
  expectFinding(makePlan("all_gather.direct_pull", {2}), Kind::Limit, "reads memory of other ranks",
                limits);
}

TEST(Verifier, RefusesWhatWouldTakeAllMemory) {
  Builder b("large", CollectiveKind::AllToAll, 512, 1 << 20);
  for (int r = 0; r < 512; ++r) b.copy({r, 0}, b.output(r, 0), b.input(r, 0));
  EXPECT_EQ(errorOf([&] { verify(b.finish()); }).kind(), ErrorKind::Unsupported);
}

TEST(Verifier, LooksAtPlansThatFollowEachOther) {
  // The ring's neighbours know of each other, but not that all have ended.
  const Plan ring = makePlan("all_reduce.ring", {4});
  const Plan direct = makePlan("all_gather.direct", {4});
  const Report report = verifyAfter(ring, direct);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.findings[0].kind, Kind::Race);

  // A reader that returns before the writer is told is the only one who matters to it.
  Builder b("meets", CollectiveKind::AllReduce, 2, 1);
  for (int r = 0; r < 2; ++r) b.copy({r, 0}, b.output(r, 0), b.input(r, 0));
  for (int r = 0; r < 2; ++r) b.step({r, 0}).signals = {b.channel({r, 0}, {1 - r, 0})};
  for (int r = 0; r < 2; ++r) b.step({r, 0}).waits = {{b.channel({1 - r, 0}, {r, 0}), 1}};
  const Plan meets = b.finish();
  EXPECT_TRUE(verifyAfter(meets, makePlan("all_gather.direct", {2})).ok());
  EXPECT_EQ(errorOf([&] { verifyAfter(meets, makePlan("all_gather.direct", {3})); }).kind(),
            ErrorKind::InvalidArgument);
}

TEST(Verifier, EveryOrderedPairIsSafeAfterABarrier) {
  // As the executors do it: between plans that share scratch, everybody waits for everybody.
  std::vector<Plan> plans;
  for (const BuiltIn& builtIn : library()) {
    if (!builtIn.whyNot({4, 0, 1, 1, 2}).empty()) continue;
    Plan plan = builtIn.make({4, 0, 1, 1, 2});
    const int first = static_cast<int>(plan.channels.size());
    const int lanes = static_cast<int>(plan.programs[0].size());
    for (int from = 0; from < 4 * lanes; ++from) {
      for (int to = 0; to < 4 * lanes; ++to) {
        if (from == to) continue;
        plan.channels.push_back({{from / lanes, from % lanes}, {to / lanes, to % lanes}, 0});
      }
    }
    for (int r = 0; r < 4; ++r) {
      for (int l = 0; l < lanes; ++l) {
        Step arrive, wait;
        for (int c = first; c < static_cast<int>(plan.channels.size()); ++c) {
          if (plan.channels[c].from == LaneId{r, l}) arrive.signals.push_back(c);
          if (plan.channels[c].to == LaneId{r, l}) wait.waits.push_back({c, 1});
        }
        plan.programs[r][l].push_back(arrive);
        plan.programs[r][l].push_back(wait);
      }
    }
    plans.push_back(std::move(plan));
  }
  for (const Plan& first : plans) {
    for (const Plan& second : plans) {
      const Report report = verifyAfter(first, second);
      EXPECT_TRUE(report.ok()) << first.name << ", " << second.name << "\n" << report.toText();
    }
  }
}

}  // namespace
}  // namespace ctran::plan
