#include "ctran/select/selector.h"

#include <gtest/gtest.h>

#include "ctran/base/error.h"
#include "ctran/plan/library.h"
#include "ctran/select/plans.h"

namespace ctran::testing {
namespace {

using Kind = CollectiveKind;

Collective allReduceOf(size_t bytes) {
  Collective c;
  c.kind = Kind::AllReduce;
  c.type = DataType::UInt8;
  c.count = bytes;
  return c;
}

TuningTable tableWith(size_t bytes, std::vector<std::pair<std::string, double>> micros) {
  TuningTable table;
  table.machine = "here";
  table.ranks = 4;
  table.entries.push_back({Kind::AllReduce, bytes, std::move(micros)});
  return table;
}

std::string whyNot(const Explanation& explanation, const std::string& algorithm) {
  for (const auto& one : explanation.alternatives) {
    if (one.algorithm == algorithm) return one.whyNot;
  }
  return "there is no " + algorithm;
}

TEST(Selector, TheCostModelGoesFromOneStepToTwoPhases) {
  Selector selector(4);
  EXPECT_EQ(selector.choose(allReduceOf(8)).name, "step");
  EXPECT_EQ(selector.choose(allReduceOf(16 << 20)).name, "two_phase");
  EXPECT_NE(selector.explain(Kind::AllReduce, 8).why.find("cost model"), std::string::npos);
}

TEST(Selector, OfTwoRanksTheRootReadsAndWritesNothing) {
  for (const size_t bytes : {size_t{64} << 10, size_t{16} << 20}) {
    EXPECT_EQ(Selector(2).explain(Kind::Reduce, bytes).algorithm, "direct") << bytes;
    EXPECT_EQ(Selector(8).explain(Kind::Reduce, bytes).algorithm, "two_phase") << bytes;
    EXPECT_EQ(Selector(2).explain(Kind::Gather, bytes).algorithm, "rounds") << bytes;
  }
  EXPECT_EQ(Selector(2).explain(Kind::Reduce, 64).algorithm, "step");
  EXPECT_EQ(Selector(2).explain(Kind::Gather, 64).algorithm, "step");
}

/// A plan that competes on communicators called "test", until the end of the block.
class Registered {
 public:
  explicit Registered(bool preferred = false)
      : number_(registerPlan(plan::makePlan("all_reduce.ring", {4}),
                             {.communicator = "test", .preferred = preferred})) {}
  ~Registered() { removePlan(number_); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

 private:
  const uint64_t number_;
};

constexpr const char* kPlan = "plan:all_reduce.ring";
constexpr size_t kBytes = 4096;

/// What serves an all_reduce of so many bytes.
std::string servedBy(Selector& selector, std::shared_ptr<const CallHints> hints = nullptr) {
  Collective call = allReduceOf(kBytes);
  call.hints = std::move(hints);
  const auto plan = selector.choosePlan(call);
  if (!plan) return std::string(selector.choose(call).name);
  EXPECT_EQ(selector.explain(Kind::AllReduce, kBytes, true, call.hints.get()).algorithm, kPlan);
  return "plan:" + plan->plan().name;
}

TEST(Selector, PlansCompeteByMeasurement) {
  Selector selector(4);
  selector.usePlans("test");
  const std::string native = servedBy(selector);
  {
    const Registered plan;
    EXPECT_EQ(servedBy(selector), native) << "without measurement there is no reason to take it";
    selector.use(tableWith(kBytes, {{kPlan, 1}, {"two_phase", 2}, {"step", 3}}));
    EXPECT_EQ(servedBy(selector), kPlan);
    EXPECT_NE(selector.explain(Kind::AllReduce, kBytes).why.find("fastest at 4096 bytes"),
              std::string::npos);
    selector.use(tableWith(kBytes, {{"two_phase", 1}, {kPlan, 2}}));
    EXPECT_EQ(servedBy(selector), "two_phase");
    selector.use(tableWith(kBytes, {{kPlan, 1}, {"two_phase", 2}}));
    EXPECT_EQ(servedBy(selector), kPlan);
  }
  EXPECT_EQ(servedBy(selector), "two_phase") << "the plan is gone, the table is not";
  const Registered again;
  EXPECT_EQ(servedBy(selector), kPlan);
  EXPECT_EQ(servedBy(selector, callHints({{"ctran::algorithm", "step"}}, false)), "step");
  Selector other(4);
  other.usePlans("another");
  other.use(tableWith(kBytes, {{kPlan, 1}, {"two_phase", 2}}));
  EXPECT_EQ(servedBy(other), "two_phase");
}

TEST(Selector, PlansServeCollectivesAlone) {
  Selector selector(4);
  selector.usePlans("test");
  const Registered plan(true);
  for (const Kind kind : {Kind::Send, Kind::Recv, Kind::AllToAllVDynamic, Kind::AllToAllVCombine}) {
    Collective call;
    call.kind = kind;
    EXPECT_EQ(selector.choosePlan(call), nullptr) << nameOf(kind);
  }
  EXPECT_NE(selector.choosePlan(allReduceOf(kBytes)), nullptr);
}

TEST(Selector, PlansAreMeasured) {
  Selector selector(4);
  selector.usePlans("test");
  const Registered plan;
  const auto names = selector.candidates(Kind::AllReduce, kBytes);
  EXPECT_EQ(std::count(names.begin(), names.end(), kPlan), 1);
  selector.force(Kind::AllReduce, kPlan);
  EXPECT_EQ(servedBy(selector), kPlan);
  selector.force(Kind::AllReduce, "two_phase");
  EXPECT_EQ(servedBy(selector), "two_phase");
  selector.force(Kind::AllReduce, {});
  EXPECT_NE(servedBy(selector), kPlan);
}

TEST(Selector, PlansAreNamedOrPreferred) {
  Selector selector(4);
  selector.usePlans("test");
  const Registered plan;
  const auto named = callHints({{"ctran::algorithm", kPlan}}, false);
  EXPECT_EQ(servedBy(selector, named), kPlan);
  selector.use(tableWith(kBytes, {{"two_phase", 1}, {kPlan, 2}}));
  {
    const Registered preferred(true);
    EXPECT_EQ(servedBy(selector), kPlan);
    EXPECT_EQ(servedBy(selector, callHints({{"ctran::algorithm", "step"}}, false)), "step");
  }
  EXPECT_EQ(servedBy(selector), "two_phase");
  // A ring sums in another order than the ranks'.
  EXPECT_NE(
      servedBy(
          selector,
          callHints({{"ctran::algorithm", kPlan}, {"ctran::deterministic", "rank_order"}}, false)),
      kPlan);
}

TEST(Selector, EveryCollectiveHasAnAlgorithmAtEverySize) {
  for (const int size : {2, 3, 8, 64}) {
    Selector selector(size);
    for (int k = 0; k <= static_cast<int>(Kind::AllToAllV); ++k) {
      for (size_t bytes = 0; bytes <= size_t{1} << 32; bytes = bytes * 4 + 1) {
        const auto kind = static_cast<Kind>(k);
        const Explanation explanation = selector.explain(kind, bytes);
        const auto found =
            std::find_if(explanation.alternatives.begin(), explanation.alternatives.end(),
                         [&](const auto& one) { return one.algorithm == explanation.algorithm; });
        ASSERT_NE(found, explanation.alternatives.end());
        EXPECT_EQ(found->whyNot, "");
      }
    }
  }
}

TEST(Selector, TheMemoryOfOthersIsReadWhereThatIsPossibleAndPays) {
  constexpr size_t kBytes = 1 << 20;
  Selector selector(2);
  const auto taken = [&] { return selector.explain(Kind::AllGather, kBytes).algorithm; };
  EXPECT_EQ(taken(), "rounds");
  selector.useReading({}, true);
  EXPECT_EQ(taken(), "pull");
  selector.useReading({}, false);
  EXPECT_EQ(taken(), "rounds");
  selector.prefer({}, Preferences("all_gather=pull", "a test"));
  EXPECT_EQ(taken(), "pull");
  selector.useReading("it is forbidden", true);
  EXPECT_EQ(taken(), "rounds");
  const Explanation explanation = selector.explain(Kind::AllGather, kBytes);
  EXPECT_EQ(whyNot(explanation, "pull"), "it is forbidden");
}

TEST(Selector, HintThenUserThenTableThenModel) {
  Selector selector(4);
  selector.use(tableWith(1024, {{"direct", 1.5}, {"step", 2}}));
  EXPECT_EQ(selector.choose(allReduceOf(1024)).name, "direct");
  EXPECT_NE(selector.explain(Kind::AllReduce, 1024).why.find("tuned"), std::string::npos);
  selector.prefer({}, Preferences("all_reduce=two_phase", "a test"));
  EXPECT_EQ(selector.choose(allReduceOf(1024)).name, "two_phase");
  EXPECT_EQ(selector.explain(Kind::AllReduce, 1024).why, "CTRAN_ALGORITHM");
  selector.prefer(Preferences("step", "a test"), Preferences("all_reduce=two_phase", "a test"));
  EXPECT_EQ(selector.choose(allReduceOf(1024)).name, "step");
  EXPECT_EQ(selector.explain(Kind::AllReduce, 1024).why, "the hint ctran::algorithm");
}

TEST(Selector, WhatCannotServeIsPassedOver) {
  Selector selector(4);
  selector.prefer(Preferences("step", "a test"), {});
  EXPECT_EQ(selector.choose(allReduceOf(16 << 20)).name, "two_phase");
  const Explanation explanation = selector.explain(Kind::AllReduce, 16 << 20);
  EXPECT_NE(whyNot(explanation, "step").find("16777216 bytes"), std::string::npos);
}

TEST(Selector, TheTableCountsNearItsSizesOnly) {
  Selector selector(4);
  selector.use(tableWith(1 << 20, {{"direct", 1}}));
  EXPECT_EQ(selector.choose(allReduceOf(2 << 20)).name, "direct");
  EXPECT_EQ(selector.choose(allReduceOf(8)).name, "step");
}

TEST(Selector, HintsOfACallComeFirst) {
  Selector selector(4);
  selector.prefer(Preferences("step", "a test"), {});
  Collective call = allReduceOf(1000);
  EXPECT_EQ(selector.choose(call).name, "step");
  call.hints = callHints({{"ctran::algorithm", "two_phase"}}, false);
  EXPECT_EQ(selector.choose(call).name, "two_phase");
  call.hints = callHints({{"ctran::algorithm", "all_gather=rounds"}}, false);
  EXPECT_EQ(selector.choose(call).name, "step");
  call.hints = callHints({{"ctran::algorithm", "direct"}}, true);
  EXPECT_EQ(selector.choose(call).name, "direct");
  call.hints = callHints({}, true);
  EXPECT_NE(selector.explain(Kind::AllReduce, 1000, true, call.hints.get()).why, kByHint);
  call.hints = nullptr;
  EXPECT_EQ(selector.choose(call).name, "step");
}

TEST(Selector, HintsThatNoCallKnowsAreRefused) {
  EXPECT_EQ(callHints({{"nccl::colour", "red"}}, false), nullptr);
  for (const char* key : {"ctran::colour", "ctran::host"}) {
    try {
      callHints({{key, "x"}}, false);
      ADD_FAILURE() << key << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
    }
  }
}

TEST(Selector, WrongPreferencesAreErrorsThatNameTheRightOnes) {
  for (const char* text : {"all_reduce=fastest", "fastest", "all_reduce=rounds", "sum=step"}) {
    try {
      const Preferences wrong(text, "a test");
      ADD_FAILURE() << text << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
      EXPECT_NE(std::string(error.what()).find("a test names"), std::string::npos) << error.what();
    }
  }
  EXPECT_NO_THROW(Preferences("all_reduce=two_phase,all_gather=rounds,ring", "a test"));
  try {
    const Preferences wrong("send=direct", "a test");
    ADD_FAILURE() << "there is a choice for messages";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("nothing to choose"), std::string::npos);
  }
}

TEST(TuningTable, SurvivesItsFile) {
  TuningTable table = tableWith(4096, {{"step", 1.25}, {"two_phase", 2.5}});
  const TuningTable again = TuningTable::fromJson(Json::parse(table.toJson().print()));
  EXPECT_EQ(again.hash(), table.hash());
  ASSERT_NE(again.find(Kind::AllReduce, 4096), nullptr);
  EXPECT_EQ(again.find(Kind::AllReduce, 4096)->micros[1].first, "two_phase");
  EXPECT_EQ(again.find(Kind::AllGather, 4096), nullptr);
  EXPECT_EQ(TuningTable{}.hash(), 0u);
  table.entries[0].micros[0].second = 1.5;
  EXPECT_NE(again.hash(), table.hash());
}

}  // namespace
}  // namespace ctran::testing
