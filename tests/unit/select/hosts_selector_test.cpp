// The selector of a communicator of several hosts.
#include <gtest/gtest.h>

#include <algorithm>

#include "ctran/base/error.h"
#include "ctran/select/selector.h"

namespace ctran::testing {
namespace {

using Kind = CollectiveKind;

/// So many ranks on each of so many hosts.
HostMap even(int hosts, int ranks) {
  std::vector<std::string> names;
  for (int r = 0; r < hosts * ranks; ++r) names.push_back(std::to_string(r / ranks));
  return {names, 0, 64};
}

Selector selectorOf(const HostMap& map, const std::map<std::string, std::string>& hints = {}) {
  Selector selector(map);
  selector.prefer(hints);
  return selector;
}

Collective call(Kind kind, size_t count, DataType type = DataType::Float32) {
  Collective c;
  c.kind = kind;
  c.type = type;
  c.count = count;
  return c;
}

TuningTable tableWith(Kind kind, size_t bytes, std::vector<std::pair<std::string, double>> micros) {
  TuningTable table;
  table.entries.push_back({kind, bytes, std::move(micros)});
  return table;
}

const Explanation::Alternative& named(const Explanation& explanation, const std::string& name) {
  const auto found = std::find_if(explanation.alternatives.begin(), explanation.alternatives.end(),
                                  [&](const auto& one) { return one.algorithm == name; });
  EXPECT_NE(found, explanation.alternatives.end()) << name;
  return *found;
}

TEST(SelectorOfHosts, EveryCollectiveHasAnAlgorithmAtEverySize) {
  for (const auto& [hosts, ranks] : {std::pair(2, 1), {3, 1}, {64, 1}, {2, 4}, {7, 3}, {33, 2}}) {
    const HostMap map = even(hosts, ranks);
    const Selector selector = selectorOf(map);
    for (int k = 0; k <= static_cast<int>(Kind::AllToAllV); ++k) {
      for (size_t bytes = 0; bytes <= size_t{1} << 32; bytes = bytes * 4 + 1) {
        for (const bool partialSums : {false, true}) {
          const auto kind = static_cast<Kind>(k);
          const Explanation explanation = selector.explain(kind, bytes, partialSums);
          EXPECT_EQ(named(explanation, explanation.algorithm).whyNot, "");
          for (const auto& one : explanation.alternatives) {
            if (one.whyNot.empty()) {
              EXPECT_GE(one.predicted, named(explanation, explanation.algorithm).predicted);
            }
          }
        }
      }
    }
  }
}

TEST(SelectorOfHosts, TheCostModelGoesFromFewStepsToFewBytes) {
  const HostMap few = even(4, 1);
  Selector selector = selectorOf(few);
  EXPECT_EQ(selector.choose(call(Kind::AllReduce, 2)).name, "direct");
  EXPECT_EQ(selector.choose(call(Kind::AllReduce, 4 << 20)).name, "two_phase");
  EXPECT_EQ(selector.choose(call(Kind::AllGather, 4 << 20)).name, "direct");
  // A connection of each to each is too much for a hundred ranks.
  const HostMap many = even(100, 1);
  Selector large = selectorOf(many);
  EXPECT_EQ(large.choose(call(Kind::AllReduce, 1000)).name, "halving_doubling");
  EXPECT_EQ(large.choose(call(Kind::AllReduce, 64 << 20)).name, "ring");
  EXPECT_EQ(large.choose(call(Kind::AllToAll, 1)).name, "bruck");
  EXPECT_EQ(large.choose(call(Kind::AllGather, 1)).name, "bruck");
}

TEST(SelectorOfHosts, WhereRanksShareHostsSharedMemoryIsCheaper) {
  for (const auto& [hosts, ranks] : {std::pair(2, 2), {2, 8}, {3, 2}, {4, 4}}) {
    const HostMap map = even(hosts, ranks);
    const Selector selector = selectorOf(map);
    for (int k = 0; k <= static_cast<int>(Kind::AllToAllV); ++k) {
      for (const size_t bytes : {size_t{0}, size_t{8}, size_t{64} << 10, size_t{16} << 20}) {
        const auto kind = static_cast<Kind>(k);
        EXPECT_EQ(selector.explain(kind, bytes, true).algorithm, kGroup)
            << nameOf(kind) << " of " << bytes << " bytes, " << map.shape();
      }
    }
  }
}

TEST(SelectorOfHosts, HintThenUserThenTableThenModel) {
  const HostMap map = even(3, 1);
  Selector selector = selectorOf(map);
  const auto taken = [](const Selector& s) { return s.explain(Kind::AllReduce, 1024, true); };
  EXPECT_NE(taken(selector).why.find("cost model"), std::string::npos);
  selector.use(tableWith(Kind::AllReduce, 1024, {{"ring", 1.5}, {"direct", 2}}));
  EXPECT_EQ(taken(selector).algorithm, "ring");
  EXPECT_EQ(selector.choose(call(Kind::AllReduce, 256)).name, "ring");
  EXPECT_NE(taken(selector).why.find("tuned"), std::string::npos);
  EXPECT_EQ(*named(taken(selector), "direct").measured, 2);
  EXPECT_FALSE(named(taken(selector), "two_phase").measured);
  ::setenv("CTRAN_ALGORITHM", "two_phase", 1);
  Selector user = selectorOf(map);
  Selector hinted = selectorOf(map, {{"ctran::algorithm", "all_reduce=halving_doubling,bruck"}});
  ::unsetenv("CTRAN_ALGORITHM");
  EXPECT_EQ(taken(user).algorithm, "two_phase");
  EXPECT_EQ(taken(user).why, "CTRAN_ALGORITHM");
  EXPECT_EQ(taken(hinted).algorithm, "halving_doubling");
  EXPECT_EQ(taken(hinted).why, "the hint ctran::algorithm");
  EXPECT_EQ(hinted.choose(call(Kind::AllToAll, 1 << 20)).name, "bruck");
  // The hint says nothing of reduce, but the variable does.
  EXPECT_EQ(hinted.choose(call(Kind::Reduce, 1)).name, "two_phase");
  EXPECT_NE(user.hash(), hinted.hash());
  EXPECT_EQ(selector.hash(), selectorOf(map).hash());
}

TEST(SelectorOfHosts, AnAlgorithmOfOneHostIsPassedOverForTheNextOne) {
  const HostMap map = even(3, 1);
  Selector selector = selectorOf(map, {{"ctran::algorithm", "ring,all_reduce=step"}});
  EXPECT_EQ(selector.choose(call(Kind::AllReduce, 1)).name, "ring");
}

TEST(SelectorOfHosts, ShortFloatsAreNotSummedInPartsUnlessThatIsNamed) {
  const HostMap map = even(100, 1);
  const auto small = [] { return call(Kind::AllReduce, 1000, DataType::BFloat16); };
  Selector selector = selectorOf(map);
  EXPECT_FALSE(selector.choose(small()).sumsPartially);
  EXPECT_TRUE(selector.choose(call(Kind::AllReduce, 500)).sumsPartially);  // as many bytes
  const Explanation explanation = selector.explain(Kind::AllReduce, 2000, false);
  EXPECT_NE(named(explanation, "ring").whyNot.find("few digits"), std::string::npos);
  selector.use(tableWith(Kind::AllReduce, 2048, {{"ring", 1}, {"two_phase", 2}}));
  EXPECT_EQ(selector.choose(small()).name, "two_phase");
  Selector hinted = selectorOf(map, {{"ctran::algorithm", "ring"}});
  EXPECT_EQ(hinted.choose(small()).name, "ring");
}

TEST(SelectorOfHosts, RankOrderExcludesPartialSumsWhateverIsNamed) {
  const HostMap map = even(2, 2);
  Selector selector =
      selectorOf(map, {{"ctran::algorithm", "ring"}, {"ctran::deterministic", "rank_order"}});
  selector.use(tableWith(Kind::AllReduce, 64 << 10, {{"group", 1}, {"two_phase", 2}}));
  for (const size_t count : {1, 16 << 10, 4 << 20}) {
    EXPECT_FALSE(selector.choose(call(Kind::AllReduce, count)).sumsPartially);
  }
  EXPECT_EQ(selector.choose(call(Kind::AllReduce, 16 << 10)).name, "two_phase");
  EXPECT_EQ(selector.choose(call(Kind::AllGather, 1)).name, "ring");
}

TEST(SelectorOfHosts, UnevenHostsHaveNoGroupForReduceScatter) {
  const HostMap map({"a", "a", "b"}, 0, 64);
  EXPECT_EQ(map.shape(), "1x1+1x2");
  Selector selector = selectorOf(map, {{"ctran::algorithm", "group"}});
  EXPECT_NE(selector.choose(call(Kind::ReduceScatter, 1)).name, kGroup);
  EXPECT_EQ(selector.choose(call(Kind::AllReduce, 1)).name, kGroup);
  const Explanation explanation = selector.explain(Kind::ReduceScatter, 12, true);
  EXPECT_NE(named(explanation, "group").whyNot.find("different numbers"), std::string::npos);
  const auto candidates = selector.candidates(Kind::ReduceScatter, 12);
  EXPECT_EQ(std::count(candidates.begin(), candidates.end(), "group"), 0);
}

TEST(HostMap, ShapesTellHowRanksAreSpreadWhateverTheirOrder) {
  EXPECT_EQ(even(2, 4).shape(), "2x4");
  EXPECT_EQ(HostMap({"a", "b", "a", "b"}, 1, 64).shape(), "2x2");
  EXPECT_EQ(HostMap({"a", "b", "b", "b", "c"}, 1, 64).shape(), "2x1+1x3");
}

}  // namespace
}  // namespace ctran::testing
