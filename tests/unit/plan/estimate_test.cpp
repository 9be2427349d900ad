// Formulas beside the simulator.
#include "ctran/plan/estimate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ctran/plan/library.h"
#include "ctran/plan/synthesis/synthesize.h"
#include "tests/unit/support/ranks.h"

namespace ctran::plan {
namespace {

using testing::errorOf;

TEST(Estimate, IsWhatTheSimulatorSays) {
  double worst = 0;
  for (const int perHost : {1, 4, 1 << 20}) {
    for (const int cards : {1, 4}) {
      Machine machine;
      machine.ranksPerHost = perHost;
      machine.cardsPerHost = cards;
      for (const char* name : {"all_reduce.ring", "all_reduce.halving_doubling",
                               "all_reduce.two_shot", "all_reduce.hierarchical"}) {
        for (const int ranks : {8, 16, 32}) {
          const int g = std::min(ranks, perHost);
          if (std::string(name) == "all_reduce.two_shot" && g < ranks) continue;
          const Plan plan = makePlan(name, {ranks, 0, 1, 1, g});
          for (const size_t bytes : {size_t{0}, size_t{1} << 16, size_t{1} << 26}) {
            const double simulated = simulate(plan, machine, bytes).seconds;
            const double estimated = estimate(name, ranks, machine, static_cast<double>(bytes));
            const double error = std::abs(estimated / simulated - 1);
            worst = std::max(worst, error);
            // With links of two kinds, ranks get ahead of each other; no formula follows that.
            const bool mixed = g > 1 && g < ranks;
            EXPECT_LT(error, mixed ? 0.2 : 0.03)
                << name << ", " << ranks << " ranks, " << g << " per host, " << cards << " cards, "
                << bytes << " bytes: " << estimated << " for " << simulated;
          }
        }
      }
    }
  }
  std::printf("  the formulas are at most %.1f %% off\n", worst * 100);
}

/// The same ranks, switches and cards as a topology and as a machine.
TEST(Estimate, KnowsWhatSynthesisComesTo) {
  struct Shape {
    int hosts, g, cards;
  };
  for (const Shape& shape : {Shape{1, 8, 1}, Shape{2, 4, 2}, Shape{4, 4, 2}, Shape{4, 4, 4}}) {
    Machine machine;
    machine.ranksPerHost = shape.g;
    machine.cardsPerHost = shape.cards;
    machine.local = {1e-6, 2e-7, 450e9};
    machine.network = {3e-6, 2e-7, 50e9};
    machine.copyBandwidth = machine.reduceBandwidth = 1e13;
    const int ranks = shape.hosts * shape.g;
    const Topology topology =
        shape.hosts == 1
            ? makeTopology("nvswitch:8")
            : makeTopology("hosts:" + std::to_string(shape.hosts) + "x" + std::to_string(shape.g) +
                           "x" + std::to_string(shape.cards));
    const Synthesis made = synthesize(topology, CollectiveKind::AllReduce);
    Machine links = machine;
    links.topology = topology;
    links.routes = made.routes;
    const size_t bytes = size_t{1} << 32;
    const double simulated = simulate(made.plan, links, bytes, 32).seconds;
    EXPECT_NEAR(estimate("all_reduce.synthesized", ranks, machine, bytes) / simulated, 1, 0.15)
        << shape.hosts << " hosts";
    // Start-up, roughly: trees may have more levels than the shape asks for.
    const double start = simulate(made.plan, links, 0).seconds;
    const double estimated = estimate("all_reduce.synthesized", ranks, machine, 0);
    EXPECT_GT(start / estimated, 0.4) << shape.hosts << " hosts";
    EXPECT_LT(start / estimated, 2.5) << shape.hosts << " hosts";
    std::printf("  %d x %d: %.0f us for %.0f, start-up %.1f us for %.1f\n", shape.hosts, shape.g,
                estimate("all_reduce.synthesized", ranks, machine, bytes) * 1e6, simulated * 1e6,
                estimated * 1e6, start * 1e6);
  }
}

/// `ctran_tests --gtest_filter='Estimate.TellsWhatScales'` prints the table of docs/plans.md.
TEST(Estimate, TellsWhatScales) {
  Machine machine;
  machine.ranksPerHost = 8;
  machine.cardsPerHost = 8;
  Machine gpus = machine;
  gpus.local.bandwidth = 450e9;
  gpus.network.bandwidth = 50e9;
  gpus.copyBandwidth = gpus.reduceBandwidth = 1e12;
  for (const int ranks : {1 << 10, 1 << 13, 1 << 17}) {
    std::printf("  %6d ranks:", ranks);
    for (const char* name : {"all_reduce.ring", "all_reduce.halving_doubling",
                             "all_reduce.hierarchical", "all_reduce.synthesized"}) {
      std::printf(" %9.3f ms, %9.1f ms;", estimate(name, ranks, gpus, 0) * 1e3,
                  estimate(name, ranks, gpus, 1 << 30) * 1e3);
    }
    std::printf("\n");
  }
  EXPECT_LT(estimate("all_reduce.synthesized", 1 << 17, gpus, 1 << 30),
            estimate("all_reduce.ring", 1 << 17, gpus, 1 << 30));
  // Start-up: a ring's grows with the ranks, halving's with their logarithm.
  const int many = 1 << 17;
  EXPECT_GT(estimate("all_reduce.ring", many, machine, 0), 1);
  EXPECT_LT(estimate("all_reduce.halving_doubling", many, machine, 0), 1e-3);
  EXPECT_LT(estimate("all_reduce.hierarchical", many, machine, 0),
            estimate("all_reduce.ring", many, machine, 0) / 4);
  // Large data: all move it about twice.
  const double bytes = 1e12;
  EXPECT_NEAR(estimate("all_reduce.ring", 1024, machine, bytes) /
                  estimate("all_reduce.halving_doubling", 1024, machine, bytes),
              1, 0.5);
}

TEST(Estimate, RejectsWhatItHasNoFormulaFor) {
  Machine machine;
  machine.ranksPerHost = 4;
  for (const auto& refused :
       std::vector<std::pair<const char*, int>>{{"all_gather.ring", 8},
                                                {"all_reduce.two_shot", 8},
                                                {"all_reduce.ring", 6},
                                                {"all_reduce.halving_doubling", 12},
                                                {"all_reduce.ring", 1}}) {
    EXPECT_EQ(errorOf([&] { estimate(refused.first, refused.second, machine, 1); }).kind(),
              ErrorKind::InvalidArgument)
        << refused.first;
  }
}

}  // namespace
}  // namespace ctran::plan
