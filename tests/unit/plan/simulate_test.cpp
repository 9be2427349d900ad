// Plans in virtual time.
#include "ctran/plan/simulate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ctran/plan/library.h"
#include "tests/unit/support/ranks.h"

namespace ctran::plan {
namespace {

using testing::errorOf;

/// Latency 1 us, 1 GB/s, and nothing else costs anything: times can be told by hand.
Machine plain() {
  Machine machine;
  machine.local = {1e-6, 0, 1e9};
  machine.network = {1e-5, 0, 1e9};
  machine.copyBandwidth = machine.reduceBandwidth = 1e18;
  machine.stepOverhead = 0;
  return machine;
}

double simulated(const std::string& name, const Recipe& recipe, const Machine& machine,
                 size_t bytes, int units = 1) {
  return simulate(makePlan(name, recipe), machine, bytes, units).seconds;
}

/// The formulas of the literature: a for latency, m / B for the bytes of a message.
TEST(Simulator, GivesTheTimesOfTextbooks) {
  const double latency = 1e-6, perByte = 1e-9;
  const size_t bytes = 1 << 20;
  for (const int n : {2, 4, 8, 16}) {
    const double piece = static_cast<double>(bytes) / n * perByte;
    EXPECT_NEAR(simulated("all_reduce.ring", {n}, plain(), bytes), 2 * (n - 1) * (latency + piece),
                1e-9);
    EXPECT_NEAR(simulated("all_gather.ring", {n}, plain(), bytes),
                (n - 1) * (latency + bytes * perByte), 1e-9);
    EXPECT_NEAR(simulated("all_reduce.recursive_doubling", {n}, plain(), bytes),
                std::log2(n) * (latency + bytes * perByte), 1e-9);
    EXPECT_NEAR(simulated("all_reduce.halving_doubling", {n}, plain(), bytes),
                2 * std::log2(n) * latency + 2 * (n - 1) * piece, 1e-9);
    EXPECT_NEAR(simulated("all_reduce.two_shot", {n}, plain(), bytes),
                2 * (latency + (n - 1) * piece), 1e-9);
    EXPECT_NEAR(simulated("broadcast.binomial", {n}, plain(), bytes),
                std::log2(n) * (latency + bytes * perByte), 1e-9);
  }
}

TEST(Simulator, OverlapsUnits) {
  // A chain of n ranks takes n - 1 steps for the first unit, and one for each that follows.
  const size_t bytes = 1 << 20;
  const int n = 8, units = 64;
  const double unit = static_cast<double>(bytes) / units * 1e-9;
  EXPECT_NEAR(simulated("broadcast.chain", {n}, plain(), bytes, units),
              (n - 1) * (1e-6 + unit) + (units - 1) * unit, (units + n) * 2e-6);
  EXPECT_LT(simulated("broadcast.chain", {n}, plain(), bytes, units),
            simulated("broadcast.chain", {n}, plain(), bytes) / 4);
}

TEST(Simulator, SharesTheCardsOfAHost) {
  Machine machine = plain();
  machine.ranksPerHost = 4;
  const size_t bytes = 1 << 22;
  const double one = simulated("all_gather.direct", {8}, machine, bytes);
  machine.cardsPerHost = 4;
  const double four = simulated("all_gather.direct", {8}, machine, bytes);
  EXPECT_GT(one, 2 * four);
  // That is what hierarchical plans are for.
  machine.cardsPerHost = 1;
  EXPECT_LT(simulated("all_reduce.hierarchical", {8, 0, 1, 1, 4}, machine, bytes),
            simulated("all_reduce.two_shot", {8}, machine, bytes));
}

TEST(Simulator, KnowsWhatFaultsDo) {
  const size_t bytes = 1 << 20;
  const double right = simulated("all_reduce.ring", {4}, plain(), bytes);
  Machine machine = plain();
  machine.slowLinks = {{1, 2, 5.0}};
  EXPECT_GT(simulated("all_reduce.ring", {4}, machine, bytes), 3 * right);
  machine.slowLinks = {{2, 1, 5.0}};  // the ring does not use it for data
  EXPECT_NEAR(simulated("all_reduce.ring", {4}, machine, bytes), right, right / 10);
  machine = plain();
  machine.stepOverhead = 1e-5;
  const double slow = simulated("all_reduce.ring", {4}, machine, bytes);
  machine.slowRanks = {{3, 50.0}};
  EXPECT_GT(simulated("all_reduce.ring", {4}, machine, bytes), 2 * slow);

  machine = plain();
  machine.deadRanks = {{2, right / 2}};
  const Timeline timeline = simulate(makePlan("all_reduce.ring", {4}), machine, bytes);
  EXPECT_TRUE(std::isinf(timeline.seconds));
  ASSERT_EQ(timeline.stuck.size(), 4u);
  EXPECT_NE(timeline.stuck[2].find("the rank is dead"), std::string::npos);
  EXPECT_NE(timeline.stuck[3].find("waits for rank 2"), std::string::npos);
  machine.deadRanks = {{7, 0}};
  EXPECT_EQ(errorOf([&] { simulate(makePlan("all_reduce.ring", {4}), machine, 1); }).kind(),
            ErrorKind::InvalidArgument);
}

TEST(Simulator, SaysWhatHappenedWhen) {
  const Plan plan = makePlan("all_gather.ring", {3});
  const Timeline timeline = simulate(plan, plain(), 3000, 2);
  EXPECT_EQ(timeline.activities.size(), 2 * plan.stepCount());
  EXPECT_EQ(timeline.transfers.size(), 2u * 3 * 2);
  for (const LinkUse& use : timeline.links) {
    EXPECT_NEAR(use.busy, 2 * 3000e-9, 1e-12) << use.link;
    EXPECT_LE(use.busy, timeline.seconds);
  }
  const Json json = toJson(timeline);
  EXPECT_EQ(json.at("activities").items().size(), timeline.activities.size());
  EXPECT_DOUBLE_EQ(json.at("seconds").asDouble(), timeline.seconds);
}

TEST(Simulator, ReadsMachines) {
  const Machine machine = machineFromJson(Json::parse(
      R"({"ranks_per_host": 8, "network": {"bandwidth": 5e10, "latency": 3e-6}, "cards_per_host": 4,
          "slow_links": [[0, 1, 2.5]], "dead_ranks": [[3, 0.1]], "lanes_in_turns": true})"));
  EXPECT_EQ(machine.ranksPerHost, 8);
  EXPECT_EQ(machine.network.bandwidth, 5e10);
  EXPECT_EQ(machine.slowLinks[0].factor, 2.5);
  EXPECT_EQ(machine.deadRanks[0].first, 3);
  for (const char* bad :
       {R"({"gpus": 8})", R"({"local": {"speed": 1}})", R"({"ranks_per_host": 0})",
        R"({"slow_links": [[1, 2]]})", R"({"slow_ranks": [[1]]})"}) {
    EXPECT_EQ(errorOf([&] { machineFromJson(Json::parse(bad)); }).kind(),
              ErrorKind::InvalidArgument);
  }
}

}  // namespace
}  // namespace ctran::plan
