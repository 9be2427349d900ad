// What a plan is made of: the builder, its checks, its text and its JSON.
#include "ctran/plan/plan.h"

#include <gtest/gtest.h>

#include "ctran/plan/builder.h"
#include "ctran/plan/library.h"
#include "ctran/plan/verify.h"
#include "tests/unit/support/ranks.h"

namespace ctran::plan {
namespace {

using testing::errorOf;

/// Two ranks exchange their inputs and add them, in rank order.
Plan exchange() {
  Builder b("exchange", CollectiveKind::AllReduce, 2, 1);
  for (int r = 0; r < 2; ++r) {
    Step& put = b.step({r, 0});
    put.from = {b.input(r, 0)};
    b.link({r, 0}, {1 - r, 0}).put(put);
  }
  for (int r = 0; r < 2; ++r) {
    Link& link = b.link({1 - r, 0}, {r, 0});
    Step& reduce = b.step({r, 0});
    if (r == 0) reduce.from = {b.input(0, 0)};
    link.arrive(reduce);
    if (r == 1) reduce.from.push_back(b.input(1, 0));
    reduce.to = {b.output(r, 0)};
    link.release(reduce);
  }
  return b.finish();
}

TEST(Plan, ReadsLikeTheAlgorithm) {
  EXPECT_EQ(toText(exchange()),
            "plan exchange: all_reduce over 2 ranks, blocks in 1 part, scratch of 1 chunk\n"
            "  channel c0: 0.0 -> 1.0\n"
            "  channel c1: 1.0 -> 0.0, 1 credits\n"
            "  channel c2: 1.0 -> 0.0\n"
            "  channel c3: 0.0 -> 1.0, 1 credits\n"
            "  rank 0, lane 0\n"
            "     0  wait c1 from 1; scratch[0]@1 = input[0]; signal c0 to 1\n"
            "     1  wait c2 from 1; output[0] = reduce(input[0], scratch[0]); signal c3 to 1\n"
            "  rank 1, lane 0\n"
            "     0  wait c3 from 0; scratch[0]@0 = input[0]; signal c2 to 0\n"
            "     1  wait c0 from 0; output[0] = reduce(scratch[0], input[0]); signal c1 to 0\n");
}

TEST(Plan, NamesItsSteps) {
  const Plan plan = exchange();
  EXPECT_EQ(nameOf(plan.programs[0][0][0], 0), "put");
  EXPECT_EQ(nameOf(plan.programs[0][0][1], 0), "reduce");
  EXPECT_EQ(nameOf(plan.programs[0][0][1], 1), "get_reduce_put");
}

TEST(Plan, SurvivesJson) {
  Plan plan = exchange();
  plan.programs[0][0][0].packet = true;
  plan.programs[0][0][1].waits[0].count = 7;
  plan.depth = 2;
  const Json json = toJson(plan);
  for (const size_t width : {0, 100}) {
    EXPECT_EQ(fromJson(Json::parse(json.print(width))), plan);
  }
  EXPECT_EQ(plan.hash(), fromJson(json).hash());
  EXPECT_NE(plan.hash(), exchange().hash());
}

TEST(Plan, KnowsWhatItNeeds) {
  const Needs needs = needsOf(exchange());
  EXPECT_FALSE(needs.remoteRead);
  EXPECT_FALSE(needs.remoteOutput);
  EXPECT_EQ(needs.scratch, 1);
  EXPECT_EQ(needs.channels, 2);
}

TEST(Plan, RejectsWhatMakesNoSense) {
  struct Case {
    const char* says;
    void (*spoil)(Plan&);
  };
  const Case cases[] = {
      {"rank 0, lane 0, step 0: there is no channel 9",
       [](Plan& p) { p.programs[0][0][0].signals = {9}; }},
      {"which ends at rank 0, lane 0",
       [](Plan& p) {
         p.programs[1][0][0].waits = {{2, 1}};
       }},
      {"which starts at rank 1, lane 0", [](Plan& p) { p.programs[0][0][0].signals = {1}; }},
      {"there is no rank 5", [](Plan& p) { p.programs[0][0][0].to[0].rank = 5; }},
      {"scratch has chunks 0 to 0, not 1", [](Plan& p) { p.programs[0][0][0].to[0].index = 1; }},
      {"it writes to the input", [](Plan& p) { p.programs[0][0][1].to[0].buffer = Buffer::Input; }},
      {"it does nothing", [](Plan& p) { p.programs[0][0].push_back({}); }},
      {"needs sources", [](Plan& p) { p.programs[0][0][1].from.clear(); }},
      {"there is no part 1", [](Plan& p) { p.programs[0][0][0].part = 1; }},
      {"is part 0 of a block, but part 1 is moved",
       [](Plan& p) {
         p.chunks = 2;
         p.programs[0][0][0].part = 1;
       }},
      {"waits for 0 signals", [](Plan& p) { p.programs[0][0][1].waits[0].count = 0; }},
      {"need as many programs", [](Plan& p) { p.programs.pop_back(); }},
      {"two lanes that exist", [](Plan& p) { p.channels[0].to.lane = 3; }},
      {"there are no plans for scatter", [](Plan& p) { p.kind = CollectiveKind::Scatter; }},
      {"it is in place", [](Plan& p) { p.kind = CollectiveKind::Broadcast; }},
      {"the depth must not be 0", [](Plan& p) { p.depth = 0; }},
      {"and the next 2147483646", [](Plan& p) { p.programs[0][0][0].count = INT32_MAX; }},
  };
  for (const Case& c : cases) {
    Plan plan = exchange();
    c.spoil(plan);
    const std::string message = errorOf([&] { check(plan); }).what();
    if (std::string(c.says).find("next") == std::string::npos) {
      EXPECT_NE(message.find(c.says), std::string::npos) << message;
    }
    EXPECT_EQ(errorOf([&] { fromJson(toJson(plan)); }).kind(), ErrorKind::InvalidArgument);
  }
}

TEST(Plan, RejectsJsonThatIsNoPlan) {
  const Json good = toJson(exchange());
  for (const char* bad : {"[]", "{}", "{\"plan\": 2}", "3"}) {
    EXPECT_EQ(errorOf([&] { fromJson(Json::parse(bad)); }).kind(), ErrorKind::InvalidArgument);
  }
  const std::string text = good.print();
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string copy = text;
    copy.replace(copy.find(from), from.size(), to);
    return Json::parse(copy);
  };
  for (const auto& change : std::vector<std::pair<std::string, std::string>>{
           {"all_reduce", "al_reduce"},
           {"\"ranks\": 2", "\"ranks\": 99999999999"},
           {"\"ranks\": 2", "\"ranks\": \"2\""},
           {"\"ranks\": 2", "\"ranks\": 2, \"colour\": 1"},
           {"\"scratch\", 0", "\"heap\", 0"},
           {"[0, 0]", "[0]"}}) {
    EXPECT_EQ(errorOf([&] { fromJson(replaced(change.first, change.second)); }).kind(),
              ErrorKind::InvalidArgument);
  }
}

TEST(Builder, ABarrierIsSignalsAmongTheLanes) {
  Builder b("lanes", CollectiveKind::AllReduce, 1, 1);
  for (int l = 0; l < 3; ++l) b.copy({0, l}, b.output(0, 0), b.input(0, 0));
  b.barrier(0);
  const Plan plan = b.finish();
  EXPECT_EQ(plan.channels.size(), 6u);
  for (int l = 0; l < 3; ++l) {
    EXPECT_EQ(plan.programs[0][l][1].signals.size(), 2u);
    EXPECT_EQ(plan.programs[0][l][2].waits.size(), 2u);
  }
}

TEST(Builder, LinksUseTheirSlotsInTurns) {
  Builder b("link", CollectiveKind::AllReduce, 2, 6);
  for (int k = 0; k < 6; ++k) {
    Step& put = b.step({0, 0});
    b.move(put, {}, {b.input(0, k)});
    b.link({0, 0}, {1, 0}).put(put);
    Step& take = b.step({1, 0});
    b.move(take, {b.output(1, k)}, {});
    b.link({0, 0}, {1, 0}).arrive(take);
    b.link({0, 0}, {1, 0}).release(take);
  }
  const Plan plan = b.finish();
  EXPECT_EQ(plan.scratch, 2);
  for (int k = 0; k < 6; ++k) {
    EXPECT_EQ(plan.programs[0][0][k].to[0].index, k % 2);
    EXPECT_EQ(plan.programs[1][0][k].from[0].index, k % 2);
  }
  EXPECT_EQ(plan.channels[1].credits, 2);
}

TEST(Plan, OfABroadcastMayHaveAnotherRoot) {
  for (const BuiltIn& builtIn : library()) {
    if (builtIn.kind != CollectiveKind::Broadcast) continue;
    const Plan plan = makePlan(builtIn.name, {4, 1});
    for (int root = 0; root < 4; ++root) {
      const Plan moved = withRoot(plan, root);
      EXPECT_EQ(moved.root, root);
      EXPECT_TRUE(verify(moved).ok()) << verify(moved).toText();
      EXPECT_EQ(withRoot(moved, 1), plan);
    }
  }
}

}  // namespace
}  // namespace ctran::plan
