// Plans as kernels, with threads of the host as blocks: the code is what a GPU's compiler gets.
// Under ThreadSanitizer a signal that is missing, or comes too early, is a reported race.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "ctran/plan/gpu/run.cuh"
#include "plan_kernels.h"
#include "tests/kernels/device_world.h"
#include "tests/kernels/write_plans/plans.h"

#include "ctran/plan/gpu/kernel.h"
#include "ctran/plan/staging.h"
#include "ctran/plan/verify.h"

namespace ctran::device {
namespace {

using plan::Buffer;
using plan::Plan;

constexpr u32 kSlices = 2;

/// What a plan needs on every rank, and its ranks.
class PlanWorld {
 public:
  PlanWorld(const Plan& plan, u64 unitBytes, u32 firstSignal = 0, u32 threads = 2)
      : plan_(plan),
        world_(plan.ranks, 16, 0, {lanesOf(plan) * kSlices, threads}),
        threads_(threads) {
    for (int rank = 0; rank < plan.ranks; ++rank) {
      // Of a plan that reaches other ranks' buffers, beside the one that stages them.
      const Plan staged = plan::staged(plan);
      const bool isDirect = staged != plan;
      const plan::Kernel kernel =
          kernelOf(staged, verify(staged).properties, rank, "made", isDirect ? &plan : nullptr);
      const plan::Kernel::Memory& memory = isDirect ? kernel.direct : kernel.memory;
      EXPECT_EQ(static_cast<u32>(kernel.lanes), lanesOf(plan));
      signals_.emplace_back(memory.signals * kSlices, 0);
      executions_.emplace_back(kernel.lanes * kSlices, 0);
      scratch_.emplace_back((memory.scratch * kSlices * unitBytes + 15) / 16 + 1);
    }
    for (int rank = 0; rank < plan.ranks; ++rank) {
      PlanTeam& team = teams_.emplace_back();
      team.team = world_.team(rank);
      for (int peer = 0; peer < plan.ranks; ++peer) {
        team.team.scratch[peer] = reinterpret_cast<char*>(scratch_[peer].data());
        team.signals[peer] = signals_[peer].data();
      }
      team.executions = executions_[rank].data();
      team.unitBytes = unitBytes;
      team.slices = kSlices;
    }
    // As if the plan had run so often already that its counters are about to wrap around.
    if (firstSignal != 0) wind(firstSignal);
  }

  /// `launches` kernels on each of `ranks`, over buffers that `input` and `output` give.
  template <class Element>
  void run(const std::vector<u32>& ranks, const std::vector<RunPlan<Element>>& kernels,
           u32 launches, const std::function<const Element*(u32, u32)>& input,
           const std::function<Element*(u32, u32)>& output, const std::function<u64(u32)>& count,
           bool reaches = false) {
    world_.run(
        ranks, launches,
        [&](u32 k) {
          // A launch may have fewer slices than there is memory for.
          return DeviceWorld::Grid{lanesOf(plan_) * (kSlices - k % kSlices), threads_};
        },
        [&](u32 rank, u32 k, const Block& block) {
          PlanReach reach = {};
          for (u32 r = 0; reaches && r < kernels.size(); ++r) {
            reach.inputs[r] = reinterpret_cast<const char*>(input(r, k));
            reach.outputs[r] = reinterpret_cast<char*>(output(r, k));
          }
          kernels[rank](teams_[rank], block, input(rank, k), output(rank, k), count(k), reach);
        });
  }

  DeviceWorld& world() { return world_; }
  /// As packets with that flag, in all of the scratch of all ranks.
  void leave(u32 flag) {
    for (auto& scratch : scratch_) {
      for (Word16& word : scratch) word.w[1] = word.w[3] = flag;
    }
  }
  size_t left(u32 flag) const {
    size_t count = 0;
    for (const auto& scratch : scratch_) {
      for (size_t i = 0; i + 1 < scratch.size(); ++i) count += scratch[i].w[3] == flag ? 1 : 0;
    }
    return count;
  }
  u64 executions(u32 rank) const { return executions_[rank][0]; }

 private:
  static u32 lanesOf(const Plan& plan) { return static_cast<u32>(plan.programs[0].size()); }

  void wind(u64 executions) {
    for (auto& counters : executions_) counters.assign(counters.size(), executions);
    std::vector<u32> index(plan_.ranks, 0);
    std::vector<u32> each(plan_.channels.size(), 0);
    for (const auto& lanes : plan_.programs) {
      for (const auto& lane : lanes) {
        for (const auto& step : lane) {
          for (const int signal : step.signals) ++each[signal];
        }
      }
    }
    for (size_t c = 0; c < plan_.channels.size(); ++c) {
      const int to = plan_.channels[c].to.rank;
      for (u32 s = 0; s < kSlices; ++s) {
        signals_[to][index[to] * kSlices + s] = static_cast<u32>(executions * each[c]);
      }
      ++index[to];
    }
  }

  const Plan& plan_;
  DeviceWorld world_;
  const u32 threads_;
  std::vector<std::vector<u32>> signals_;
  std::vector<std::vector<u64>> executions_;
  std::vector<std::vector<Word16>> scratch_;
  std::vector<PlanTeam> teams_;
};

i32 valueOf(u32 rank, u32 k, u64 i) { return static_cast<i32>(rank * 1000003 + k * 7919 + i * 3); }

/// Element i of the output of a rank.
i32 expected(const Plan& plan, u32 rank, u32 k, u64 count, u64 i) {
  const auto sum = [&](u64 at) {
    i32 total = 0;
    for (int r = 0; r < plan.ranks; ++r) total += valueOf(r, k, at);
    return total;
  };
  switch (plan.kind) {
    case CollectiveKind::AllReduce:
      return sum(i);
    case CollectiveKind::ReduceScatter:
      return sum(rank * count + i);
    case CollectiveKind::AllGather:
      return valueOf(i / count, k, i % count);
    case CollectiveKind::AllToAll:
      return valueOf(i / count, k, rank * count + i % count);
    default:
      return valueOf(plan.root, k, i);
  }
}

/// `flag`: of packets that were left long ago; none are there any more then.
void expectResults(const Plan& plan, const std::vector<RunPlan<i32>>& kernels, u32 firstSignal,
                   bool reaches = false, u32 flag = 0) {
  SCOPED_TRACE(plan.name + " over " + std::to_string(plan.ranks) + " ranks");
  const std::vector<u64> counts = {1, 0, 517, 64, 33};
  PlanWorld world(plan, flag == 0 ? 64 : 4096, firstSignal);
  if (flag != 0) world.leave(flag);
  const u64 inputs = plan.blocks(Buffer::Input), outputs = plan.blocks(Buffer::Output);
  std::vector<std::vector<std::vector<i32>>> in(plan.ranks), out(plan.ranks);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    for (u32 k = 0; k < counts.size(); ++k) {
      auto& from = in[rank].emplace_back();
      for (u64 i = 0; i < inputs * counts[k]; ++i) from.push_back(valueOf(rank, k, i));
      auto& to = out[rank].emplace_back(outputs * counts[k] + 1, -1);
      if (plan.inPlace) std::copy(from.begin(), from.end(), to.begin());
    }
  }
  std::vector<u32> all(plan.ranks);
  std::iota(all.begin(), all.end(), 0);
  world.run<i32>(
      all, kernels, counts.size(), [&](u32 rank, u32 k) { return in[rank][k].data(); },
      [&](u32 rank, u32 k) { return out[rank][k].data(); }, [&](u32 k) { return counts[k]; },
      reaches);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    for (u32 k = 0; k < counts.size(); ++k) {
      for (u64 i = 0; i < outputs * counts[k]; ++i) {
        ASSERT_EQ(out[rank][k][i], expected(plan, rank, k, counts[k], i))
            << "rank " << rank << ", launch " << k << ", element " << i;
      }
      EXPECT_EQ(out[rank][k].back(), -1) << "it wrote beyond its end";
    }
    EXPECT_GT(world.executions(rank), firstSignal);
  }
  EXPECT_TRUE(flag == 0 || world.left(flag) == 0);
}

TEST(PlanKernel, GivesWhatTheCollectivePromises) {
  const auto plans = plan::testing::plansForKernels();
  const auto& kernels = kPlanKernels<i32, Sum>;
  ASSERT_EQ(kernels.size(), plans.size());
  for (size_t p = 0; p < plans.size(); ++p) expectResults(plans[p], kernels[p], 0);
}

TEST(PlanKernel, ReachesBuffersOfOtherRanks) {
  const auto plans = plan::testing::plansThatReach();
  for (size_t p = 0; p < plans.size(); ++p) {
    expectResults(plans[p], kReachKernels<i32, Sum>[p], 0, true);
  }
}

/// Rank 1 has no place for its output in launch 2: then nobody reaches any.
TEST(PlanKernel, RanksTellEachOtherWhereTheirBuffersAre) {
  constexpr u32 kRanks = 3, kLaunches = 5, kBlocks = 2;
  DeviceWorld world(kRanks, 16, 0, {kBlocks, 2});
  std::vector<std::vector<Word16>> mail(kRanks, std::vector<Word16>(kBlocks * 4 * kMaxRanks));
  std::vector<std::vector<u64>> launches(kRanks, std::vector<u64>(kBlocks));
  for (u32 rank = 0; rank < kRanks; ++rank) {
    for (u32 peer = 0; peer < kRanks; ++peer) world.team(rank).state->mapped[peer][6] = 1 << 20;
  }
  std::vector<char> buffers(kRanks);
  world.run(
      {0, 1, 2}, kLaunches,
      [](u32) {
        return DeviceWorld::Grid{kBlocks, 2};
      },
      [&](u32 rank, u32 k, const Block& block) {
        PlanArguments arguments{};
        arguments.plan.team = world.team(rank);
        arguments.input = arguments.output = &buffers[rank];
        const bool isNowhere = rank == 1 && k == 2;
        arguments.offers[1] = isNowhere ? 0 : placed({7, 100 * u64{rank} + k});
        for (u32 r = 0; r < kRanks; ++r) arguments.mail[r] = mail[r].data();
        arguments.launches = launches[rank].data();
        PlanReach reach = {};
        const Reached reached = reachOthers<false, true>(arguments, block, reach);
        EXPECT_EQ(reached, k == 2 ? Reached::Staged : Reached::Direct) << rank << ", " << k;
        for (u32 r = 0; r < kRanks && reached == Reached::Direct; ++r) {
          EXPECT_EQ(reach.inputs[r], nullptr);
          EXPECT_EQ(reinterpret_cast<u64>(reach.outputs[r]),
                    r == rank ? reinterpret_cast<u64>(&buffers[r]) : (1 << 20) + 100 * r + k);
        }
      });
}

/// Rank 2 never comes.
TEST(PlanKernel, WhoDoesNotTellWhereItsBuffersAreIsNamed) {
  DeviceWorld world(3, 16, 0, {1, 2});
  std::vector<std::vector<Word16>> mail(3, std::vector<Word16>(4 * kMaxRanks));
  std::vector<u64> launches(3);
  for (const u32 rank : {0, 1}) world.control(rank).timeoutNs = 20000000;
  world.run(
      {0, 1}, 1,
      [](u32) {
        return DeviceWorld::Grid{1, 2};
      },
      [&](u32 rank, u32, const Block& block) {
        PlanArguments arguments{};
        arguments.plan.team = world.team(rank);
        for (u32 r = 0; r < 3; ++r) arguments.mail[r] = mail[r].data();
        arguments.launches = &launches[rank];
        PlanReach reach = {};
        EXPECT_EQ((reachOthers<true, false>(arguments, block, reach)), Reached::Failed);
      });
  for (const u32 rank : {0, 1}) {
    EXPECT_EQ(world.report(rank).state, kTimedOut);
    EXPECT_NE(world.report(rank).waitedFor[2], 0u);
  }
}

TEST(PlanKernel, CountersMayWrapAround) {
  const auto plans = plan::testing::plansForKernels();
  const auto& kernels = kPlanKernels<i32, Sum>;
  for (const size_t p : {size_t{0}, size_t{3}, plans.size() - 1}) {
    expectResults(plans[p], kernels[p], 0xfffffff8u);
  }
}

/// With packets nobody waits for signals but for those of lanes of one rank.
TEST(PlanKernel, SendsPacketsWhereThePlanSaysSo) {
  int found = 0;
  for (const Plan& plan : plan::testing::plansForKernels()) {
    const std::string source = kernelOf(plan, verify(plan).properties, 0).source;
    const bool is = plan.name.ends_with(".packets");
    found += is ? 1 : 0;
    EXPECT_EQ(source.find("r.template packets<") != std::string::npos, is) << plan.name;
    EXPECT_TRUE(!is || source.find("if (!r.wait(") == std::string::npos) << source;
    // Nor do threads meet, which have each what it needs itself.
    EXPECT_TRUE(!is || source.find("r.template packets<false, false, false, ") != std::string::npos)
        << source;
  }
  EXPECT_EQ(found, 4);
}

/// Flags come round after 2^32 executions: before that, those that were left are taken off.
TEST(PlanKernel, PacketsThatWereLeftLongAgoAreForgotten) {
  const auto plans = plan::testing::plansForKernels();
  const auto& kernels = kPlanKernels<i32, Sum>;
  size_t tried = 0;
  for (size_t p = 0; p < plans.size(); ++p) {
    if (!plans[p].name.ends_with(".packets")) continue;
    ++tried;
    expectResults(plans[p], kernels[p], (3u << 30) - 2, false, /*flag*/ 2u << 30);
  }
  EXPECT_GT(tried, 3u);
}

/// Threads that do not meet wait for packets of their own: of parts that are of one size, and not.
TEST(PlanKernel, PacketsAreNotOverwrittenBeforeTheyAreRead) {
  const auto plans = plan::testing::plansForKernels();
  for (size_t p = 0; p < plans.size(); ++p) {
    if (!plans[p].name.ends_with(".packets") || plans[p].kind != CollectiveKind::AllReduce)
      continue;
    SCOPED_TRACE(plans[p].name);
    const auto ranks = static_cast<u32>(plans[p].ranks);
    PlanWorld world(plans[p], 64, 0, 4);
    std::vector<u32> all(ranks);
    std::iota(all.begin(), all.end(), 0);
    constexpr u32 kLaunches = 100;
    for (const u64 count : {u64{37}, u64{48}, u64{96}}) {
      std::vector<std::vector<i32>> in(ranks * kLaunches), out(ranks * kLaunches);
      for (u32 i = 0; i < in.size(); ++i) in[i].assign(count, static_cast<i32>(i));
      out = in;
      world.run<i32>(
          all, kPlanKernels<i32, Sum>[p], kLaunches,
          [&](u32 rank, u32 k) { return in[k * ranks + rank].data(); },
          [&](u32 rank, u32 k) { return out[k * ranks + rank].data(); },
          [&](u32) { return count; });
      for (u32 i = 0; i < out.size(); ++i) {
        const u32 first = i / ranks * ranks;
        const auto sum = static_cast<i32>(ranks * first + ranks * (ranks - 1) / 2);
        ASSERT_EQ(out[i], std::vector<i32>(count, sum)) << "launch and rank " << i;
      }
    }
  }
}

template <class Element>
void expectSums(const std::function<Element(u32)>& of) {
  const auto plans = plan::testing::plansForKernels();
  const Plan& plan = plans.back();
  ASSERT_EQ(plan.name, "all_reduce.lanes.packets");
  PlanWorld world(plan, 64);
  for (const u64 count : {u64{37}, u64{1}}) {
    std::vector<std::vector<Element>> data(2, std::vector<Element>(count));
    for (u32 rank = 0; rank < 2; ++rank) {
      for (u64 i = 0; i < count; ++i) data[rank][i] = of(rank + 1 + i);
    }
    world.run<Element>(
        {0, 1}, kPlanKernels<Element, Sum>.back(), 1, [&](u32 r, u32) { return data[r].data(); },
        [&](u32 r, u32) { return data[r].data(); }, [&](u32) { return count; });
    for (u32 rank = 0; rank < 2; ++rank) {
      for (u64 i = 0; i < count; ++i) {
        const Element expected = of(3 + 2 * i);
        EXPECT_EQ(std::memcmp(&data[rank][i], &expected, sizeof expected), 0) << i;
      }
    }
  }
}

TEST(PlanKernel, PacketsHoldElementsOfAnySize) {
  expectSums<u8>([](u32 n) { return static_cast<u8>(n); });
  expectSums<u64>([](u32 n) { return u64{n} << 33; });
  expectSums<Float16>([](u32 n) {
    Float16 made;
    narrow(static_cast<f32>(n), made);
    return made;
  });
}

/// Where a plan of that name is, the first of them.
size_t indexOf(const std::vector<Plan>& plans, std::string_view name) {
  return std::find_if(plans.begin(), plans.end(),
                      [name](const Plan& plan) { return plan.name == name; }) -
         plans.begin();
}

/// One of the ranks never comes.
TEST(PlanKernel, EveryWaitEndsAndNamesTheRank) {
  const auto plans = plan::testing::plansForKernels();
  const size_t twoShot = indexOf(plans, "all_reduce.two_shot");
  const Plan& plan = plans.at(twoShot);
  for (const bool aborts : {false, true}) {
    PlanWorld world(plan, 64);
    for (const u32 rank : {0, 1, 2}) {
      if (aborts) world.world().control(rank).abort = 1;
      world.world().control(rank).timeoutNs = 20000000;
    }
    const std::vector<i32> input(40, 1);
    std::vector<std::vector<i32>> outputs(4, std::vector<i32>(40));
    world.run<i32>(
        {0, 1, 2}, kPlanKernels<i32, Sum>[twoShot], 2, [&](u32, u32) { return input.data(); },
        [&](u32 rank, u32) { return outputs[rank].data(); }, [](u32) { return u64{40}; });
    for (const u32 rank : {0, 1, 2}) {
      EXPECT_EQ(world.world().report(rank).state, aborts ? kAborted : kTimedOut);
      EXPECT_EQ(world.world().state(rank).failed, aborts ? kAborted : kTimedOut);
      EXPECT_TRUE(aborts || world.world().report(rank).waitedFor[3] != 0);
      EXPECT_EQ(world.executions(rank), 0u);
    }
  }
}

TEST(PlanKernel, ReducesAsTheOperationSays) {
  const auto plans = plan::testing::plansForKernels();
  const std::vector<f32> inputs[] = {{1e8f, 2}, {1, 4}, {-1e8f, 8}, {1, 10}};
  const auto result = [&](const auto& kernels, size_t p) {
    PlanWorld world(plans[p], 64);
    std::vector<std::vector<f32>> outputs(4, std::vector<f32>(2));
    world.run<f32>(
        {0, 1, 2, 3}, kernels[p], 1, [&](u32 rank, u32) { return inputs[rank].data(); },
        [&](u32 rank, u32) { return outputs[rank].data(); }, [](u32) { return u64{2}; });
    for (const auto& output : outputs) EXPECT_EQ(output, outputs[0]);
    return outputs[0];
  };
  const size_t twoShot = indexOf(plans, "all_reduce.two_shot");
  EXPECT_EQ(result(kPlanKernels<f32, Sum>, twoShot)[0], ((1e8f + 1) - 1e8f) + 1);  // in rank order
  for (const size_t p : {size_t{0}, twoShot}) EXPECT_EQ(result(kPlanKernels<f32, Avg>, p)[1], 6);
  EXPECT_EQ(result(kPlanKernels<f32, Max>, twoShot), (std::vector<f32>{1e8f, 10}));
}

}  // namespace
}  // namespace ctran::device
