// Plans made for topologies: as fast as any can be, and right.
#include "ctran/plan/synthesis/synthesize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "ctran/plan/library.h"
#include "ctran/plan/simulate.h"
#include "ctran/plan/synthesis/flow.h"
#include "ctran/plan/verify.h"
#include "tests/unit/support/ranks.h"

namespace ctran::plan {
namespace {

using testing::errorOf;

const char* const kTopologies[] = {"nvswitch:8",  "pcie:8",    "hosts:2x8x4",
                                   "hosts:4x4x2", "torus:3x4", "torus:4x4"};

TEST(Flow, IsAsLargeAsTheSmallestCut) {
  Flow flow(6);
  const int edges[][3] = {{0, 1, 16}, {0, 2, 13}, {1, 2, 10}, {2, 1, 4},  {1, 3, 12},
                          {3, 2, 9},  {2, 4, 14}, {4, 3, 7},  {3, 5, 20}, {4, 5, 4}};
  for (const auto& [from, to, capacity] : edges) flow.add(from, to, capacity);
  EXPECT_EQ(flow.run(0, 5), 23);
  int64_t cut = 0;
  for (const auto& [from, to, capacity] : edges) {
    if (flow.isOnSourceSide(from) && !flow.isOnSourceSide(to)) cut += capacity;
  }
  EXPECT_EQ(cut, 23);
}

/// All sets of nodes, one by one.
Fraction boundByTrial(const Topology& topology) {
  const auto capacity = topology.capacities();
  Fraction least{INT64_MAX / (1 << 20), 1};
  for (int set = 1; set < 1 << topology.nodes(); ++set) {
    int64_t leaves = 0, inside = 0;
    for (int a = 0; a < topology.nodes(); ++a) {
      if ((set >> a & 1) == 0) continue;
      inside += a < topology.ranks;
      for (int b = 0; b < topology.nodes(); ++b) {
        if ((set >> b & 1) == 0) leaves += capacity[a][b];
      }
    }
    if (inside == 0 || inside == topology.ranks) continue;
    if (leaves * least.under < least.over * inside) least = fraction(leaves, inside);
  }
  return least;
}

TEST(Synthesis, FindsTheBoundThatAllSetsOfNodesSet) {
  for (const char* name : {"nvswitch:5", "pcie:8", "hosts:2x4x2", "torus:3x3", "torus:2x5"}) {
    const Topology topology = makeTopology(name);
    EXPECT_EQ(cutBound(topology), boundByTrial(topology)) << name;
  }
  // What is known: a rank of n behind a switch receives from n - 1; a host of 8 has 4 cards for
  // what 8 ranks send.
  EXPECT_EQ(cutBound(makeTopology("nvswitch:8")), fraction(450'000, 7));
  EXPECT_EQ(cutBound(makeTopology("hosts:2x8x4")), fraction(4 * 50'000, 8));
  EXPECT_EQ(cutBound(makeTopology("torus:4x4")), fraction(4 * 25'000, 15));
}

/// Every tree reaches every rank once, and links carry no more trees than they can.
void checkForest(const Topology& topology, const Forest& forest) {
  std::vector<int64_t> shares(topology.ranks, 0);
  std::map<std::pair<int, int>, double> load;
  std::map<std::pair<int, int>, int64_t> between;
  for (const Tree& tree : forest.trees) {
    shares[tree.root] += tree.share;
    std::set<int> reached{tree.root};
    for (const auto& [from, to] : tree.edges) {
      EXPECT_TRUE(reached.count(from));
      EXPECT_TRUE(reached.insert(to).second);
      between[{from, to}] += tree.share;
    }
    EXPECT_EQ(static_cast<int>(reached.size()), topology.ranks);
  }
  for (const int64_t share : shares) EXPECT_EQ(share, forest.shares);
  for (const auto& [ends, count] : between) {
    int64_t all = 0;
    for (const Route& way : forest.routes.at(ends)) all += way.share;
    for (const Route& way : forest.routes.at(ends)) {
      EXPECT_EQ(way.nodes.front(), ends.first);
      EXPECT_EQ(way.nodes.back(), ends.second);
      for (size_t i = 1; i < way.nodes.size(); ++i) {
        load[{way.nodes[i - 1], way.nodes[i]}] += static_cast<double>(count * way.share) / all;
      }
    }
  }
  const auto capacity = topology.capacities();
  for (const auto& [link, count] : load) {
    EXPECT_LE(count * forest.rate.value() / forest.shares,
              capacity[link.first][link.second] * (1 + 1e-9));
  }
}

TEST(Synthesis, PacksTreesThatReachTheBound) {
  for (const char* name : kTopologies) {
    const Topology topology = makeTopology(name);
    const Forest forest = packTrees(topology);
    EXPECT_EQ(forest.rate, forest.bound) << name;
    checkForest(topology, forest);
  }
}

TEST(Synthesis, IsRightAndAsFastAsTheLinksAllow) {
  for (const char* name : kTopologies) {
    const Topology topology = makeTopology(name);
    for (const auto kind :
         {CollectiveKind::AllGather, CollectiveKind::ReduceScatter, CollectiveKind::AllReduce}) {
      const Synthesis made = synthesize(topology, kind);
      const Report report = verify(made.plan);
      EXPECT_TRUE(report.ok()) << name << "\n" << report.toText();
      EXPECT_EQ(made.rate, made.bound) << name;
      // The busiest link takes as long as the bound says, not longer.
      EXPECT_NEAR(linkSeconds(made.plan, topology, made.routes) / made.boundFor(1), 1, 1e-9)
          << name << " " << nameOf(kind);
    }
  }
}

/// As many bytes and units as make start-up small; nothing but links costs anything.
double simulated(const Plan& plan, const Topology& topology, const Routes& routes) {
  Machine machine;
  machine.local.overhead = machine.stepOverhead = 0;
  machine.copyBandwidth = machine.reduceBandwidth = 1e18;
  machine.topology = topology;
  machine.routes = routes;
  return simulate(plan, machine, size_t{1} << 30, 32).seconds;
}

TEST(Synthesis, BeatsTheRingWhereLinksDiffer) {
  for (const char* name : kTopologies) {
    const Topology topology = makeTopology(name);
    const Synthesis made = synthesize(topology, CollectiveKind::AllGather);
    const double ours = simulated(made.plan, topology, made.routes);
    const double ring = simulated(makePlan("all_gather.ring", {topology.ranks}), topology, {});
    const double bound = made.boundFor(size_t{1} << 30);
    std::printf("  %-12s bound %6.2f ms, synthesized %6.2f, ring %6.2f\n", name, bound * 1e3,
                ours * 1e3, ring * 1e3);
    EXPECT_GE(ours, bound * (1 - 1e-9)) << name;
    EXPECT_LT(ours, bound * 1.1) << name;
    EXPECT_LT(ours, ring * 1.1) << name;
  }
}

TEST(Synthesis, TakesTheBestOfFewShares) {
  // 7 shares per rank would be exact.
  Topology odd{3, {"switch"}, {}};
  odd.linkBothWays(0, 3, 10'007);
  odd.linkBothWays(1, 3, 10'009);
  odd.linkBothWays(2, 3, 20'011);
  const Forest exact = packTrees(odd, 1 << 20);
  EXPECT_EQ(exact.rate, exact.bound);
  double before = 0;
  for (const int most : {1, 2, 8}) {
    const Forest few = packTrees(odd, most);
    EXPECT_LE(few.shares, most);
    EXPECT_LE(few.rate.value(), few.bound.value());
    EXPECT_GE(few.rate.value(), before);
    EXPECT_GT(few.rate.value(), few.bound.value() * 0.5);
    before = few.rate.value();
    checkForest(odd, few);
  }
}

TEST(Synthesis, WorksForDirectedLinksAndForOneRank) {
  // A ring one way round: only one way to do it.
  Topology ring{4, {}, {}};
  for (int r = 0; r < 4; ++r) ring.links.push_back({r, (r + 1) % 4, 1000});
  for (const auto kind :
       {CollectiveKind::AllGather, CollectiveKind::ReduceScatter, CollectiveKind::AllReduce}) {
    const Synthesis made = synthesize(ring, kind);
    EXPECT_EQ(made.rate, fraction(1000, 3));
    EXPECT_TRUE(verify(made.plan).ok());
    EXPECT_TRUE(verify(synthesize(Topology{1, {}, {}}, kind).plan).ok());
  }
}

TEST(Synthesis, SaysWhatIsWrongWithATopology) {
  const auto says = [](const Topology& topology, const char* text) {
    const Error error = errorOf([&] { synthesize(topology, CollectiveKind::AllGather); });
    EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  };
  says({3, {}, {{0, 1, 5}, {1, 0, 5}}}, "reach rank");
  says({2, {}, {{0, 1, 5}, {1, 0, 4}}}, "as much has to leave rank 0 as enters it");
  EXPECT_EQ(errorOf([] { synthesize(makeTopology("torus:2x2"), CollectiveKind::AllToAll); }).kind(),
            ErrorKind::InvalidArgument);
  for (const char* bad : {"ring:4", "torus:4", "torus:0x4", "nvswitch", "pcie:6", "hosts:2x2x3",
                          "torus:99999x99999", "torus:4x"}) {
    EXPECT_EQ(errorOf([&] { makeTopology(bad); }).kind(), ErrorKind::InvalidArgument) << bad;
  }
}

TEST(Topology, SurvivesJson) {
  for (const char* name : kTopologies) {
    const Topology topology = makeTopology(name);
    const Topology read = topologyFromJson(Json::parse(toJson(topology).print()));
    EXPECT_EQ(read.links, topology.links);
    EXPECT_EQ(read.switches, topology.switches);
  }
  const Topology read = topologyFromJson(
      Json::parse(R"({"ranks": 2, "links": [[0, "s", 12.5], [1, "s", 1]], "latency": 2e-6})"));
  EXPECT_EQ(read.links.size(), 4u);
  EXPECT_EQ(read.links[0], (Topology::Link{0, 2, 12'500}));
  EXPECT_EQ(shortestRoute(read, 0, 1), (std::vector<int>{0, 2, 1}));
  const Routes routes = synthesize(read, CollectiveKind::AllGather).routes;
  EXPECT_EQ(toJson(routesFromJson(toJson(routes))), toJson(routes));
  for (const char* bad :
       {"{}", R"({"ranks": 0})", R"({"ranks": 2, "links": [[0, 2, 1]]})",
        R"({"ranks": 2, "links": [[0, 1, -1]]})", R"({"ranks": 2, "links": [[0, 0, 1]]})",
        R"({"ranks": 2, "links": [[0, 1, 0.0001]]})", R"({"ranks": 2, "colour": 1})"}) {
    EXPECT_EQ(errorOf([&] { topologyFromJson(Json::parse(bad)); }).kind(),
              ErrorKind::InvalidArgument)
        << bad;
  }
}

}  // namespace
}  // namespace ctran::plan
