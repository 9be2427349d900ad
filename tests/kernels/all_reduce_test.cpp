// The protocols of the packet all-reduce kernels, with threads of the host as blocks. Unused slots
// are wiped every few operations here instead of every 2^30.
#define CTRAN_SCRUB_EVERY 8u
#include "ctran/collective/all_reduce/two_shot.cuh"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "tests/kernels/device_world.h"

namespace ctran::device {
namespace {

constexpr u64 kSlotBytes = 16 * 64;

template <class Element, class Op, u32 kRanks>
void allReduce(bool twoShot, const Team& team, const Block& block, const Element* in, Element* out,
               u64 count, double factor = 1) {
  if (twoShot)
    allReduceTwoShot<Element, Op, kRanks>(team, block, in, out, count, factor);
  else
    allReduceOneShot<Element, Op, kRanks>(team, block, in, out, count, factor);
}

/// A sequence of operations of changing size, algorithm and grid, alike on every rank.
struct Plan {
  struct Step {
    u64 count;
    bool twoShot;
    bool inPlace;
    u32 shift;
    DeviceWorld::Grid grid;
  };
  std::vector<Step> steps;

  Plan(u32 operations, u32 random, u32 most) {
    auto next = [&](u32 below) {
      random = random * 1664525u + 1013904223u;
      return (random >> 8) % below;
    };
    for (u32 k = 0; k < operations; ++k) {
      const bool two = next(2) == 1;
      steps.push_back({1 + next(next(3) == 0 ? most : 7), two, next(2) == 1, next(2),
                       next(2) == 1 ? DeviceWorld::Grid{1, 2} : DeviceWorld::Grid{1 + next(2), 1}});
    }
  }
};

template <class Element>
Element valueOf(u32 rank, u32 k, u64 i) {
  return static_cast<Element>(rank * 31 + k * 7 + i * 3 + 1);
}

/// Every rank's output of every operation is the sum in full and nothing else has been written.
template <u32 kRanks>
void expectSums(u32 firstEpoch, u32 operations, u32 random) {
  const Plan plan(operations, random, 120);
  DeviceWorld world(kRanks, kSlotBytes, firstEpoch, {2, 1});
  constexpr u64 kRoom = 128;
  constexpr i32 kPoison = -77777;
  std::vector<std::vector<i32>> inputs(kRanks), outputs(kRanks);
  for (u32 rank = 0; rank < kRanks; ++rank) {
    outputs[rank].assign(operations * kRoom, kPoison);
    for (u32 k = 0; k < operations; ++k) {
      for (u64 i = 0; i < kRoom; ++i) inputs[rank].push_back(valueOf<i32>(rank, k, i));
      const auto& step = plan.steps[k];
      if (!step.inPlace) continue;
      const u64 at = k * kRoom + step.shift;
      std::copy_n(&inputs[rank][at], step.count, &outputs[rank][at]);
    }
  }
  std::vector<u32> all(kRanks);
  std::iota(all.begin(), all.end(), 0);
  world.run(
      all, operations, [&](u32 k) { return plan.steps[k].grid; },
      [&](u32 rank, u32 k, const Block& block) {
        const auto& step = plan.steps[k];
        i32* out = &outputs[rank][k * kRoom + step.shift];
        const i32* in = step.inPlace ? out : &inputs[rank][k * kRoom + step.shift];
        allReduce<i32, Sum, kRanks>(step.twoShot, world.team(rank), block, in, out, step.count);
      });
  for (u32 rank = 0; rank < kRanks; ++rank) {
    for (u32 k = 0; k < operations; ++k) {
      const auto& step = plan.steps[k];
      for (u64 i = 0; i < kRoom; ++i) {
        i32 expected = kPoison;
        if (i >= step.shift && i < step.shift + step.count) {
          expected = 0;
          for (u32 r = 0; r < kRanks; ++r) expected += valueOf<i32>(r, k, i);
        }
        ASSERT_EQ(outputs[rank][k * kRoom + i], expected)
            << "rank " << rank << ", operation " << k << ", element " << i;
      }
    }
    u32 epoch = firstEpoch;
    for (u32 k = 0; k < operations; ++k) epoch = nextEpoch(epoch);
    for (u32 copy : world.state(rank).epoch) ASSERT_EQ(copy, epoch);
  }
}

TEST(PacketAllReduce, TwoRanksAgreeOnEverySum) { expectSums<2>(0, 200, 1); }
TEST(PacketAllReduce, ThreeRanksAgreeOnEverySum) { expectSums<3>(0, 150, 2); }
TEST(PacketAllReduce, FourRanksAgreeOnEverySum) { expectSums<4>(0, 100, 3); }
TEST(PacketAllReduce, EpochsMayWrapAround) { expectSums<3>(0xffffffc0u, 150, 4); }
TEST(PacketAllReduce, OneRankIsACopy) { expectSums<1>(0, 20, 5); }

/// A slot still holds what was put there 2^32 operations ago: the very flag that is expected now.
/// The peer never sends, so whoever believes that flag finishes, with wrong data.
TEST(PacketAllReduce, FlagsFromBeforeTheWrapAreWipedInTime) {
  constexpr u64 kCount = 90;
  const u32 first = 5, last = 14;  // operations 9, 10 and 11 wipe
  DeviceWorld world(2, kSlotBytes, first - 1, {2, 1});
  for (u32 i = 0; i < kCount / 3; ++i) {
    storePacket(slotOf(world.team(0), last, 1, 0) + i, {{666, 666, 666}}, last);
  }
  std::vector<std::vector<i32>> outputs(2, std::vector<i32>(kCount));
  const std::vector<i32> input(kCount, 21);
  auto reduce = [&](u64 count) {
    return [&, count](u32 rank, u32, const Block& block) {
      allReduceOneShot<i32, Sum, 2>(world.team(rank), block, input.data(), outputs[rank].data(),
                                    count, 1);
    };
  };
  const auto grid = [](u32) { return DeviceWorld::Grid{2, 1}; };
  world.run({0, 1}, last - first, grid, reduce(1));
  world.control(0).timeoutNs = 20000000;
  outputs[0].assign(kCount, 0);
  world.run({0}, 1, grid, reduce(kCount));
  EXPECT_EQ(outputs[0], std::vector<i32>(kCount, 0));
  EXPECT_EQ(world.report(0).state, kTimedOut);
  EXPECT_EQ(world.report(0).epoch, last);
}

template <class Element, class Op>
std::vector<Element> reduceThree(const std::vector<std::vector<Element>>& inputs, bool twoShot,
                                 std::vector<double> factors = {1, 1, 1}) {
  const u64 count = inputs[0].size();
  DeviceWorld world(3, kSlotBytes, 0, {1, 1});
  std::vector<std::vector<Element>> outputs(3, std::vector<Element>(count));
  world.run(
      {0, 1, 2}, 1,
      [](u32) {
        return DeviceWorld::Grid{1, 1};
      },
      [&](u32 rank, u32, const Block& block) {
        allReduce<Element, Op, 3>(twoShot, world.team(rank), block, inputs[rank].data(),
                                  outputs[rank].data(), count, factors[rank]);
      });
  for (u32 rank = 1; rank < 3; ++rank) {
    EXPECT_EQ(0, std::memcmp(outputs[0].data(), outputs[rank].data(), count * sizeof(Element)))
        << "ranks differ in their bits";
  }
  return outputs[0];
}

TEST(PacketReduce, CombinesInRankOrder) {
  const std::vector<std::vector<f32>> inputs = {{1e8f, 1}, {1, 1e8f}, {-1e8f, -1e8f}};
  for (bool twoShot : {false, true}) {
    const auto sum = reduceThree<f32, Sum>(inputs, twoShot);
    EXPECT_EQ(sum[0], (1e8f + 1) - 1e8f);
    EXPECT_EQ(sum[1], (1 + 1e8f) - 1e8f);
  }
}

TEST(PacketReduce, SmallFloatsAccumulateInSingleAndRoundOnce) {
  auto bf16 = [](float x) {
    BFloat16 y;
    narrow(x, y);
    return y;
  };
  // 256 + 1 + 1: in bf16 each addition would be lost, in single their sum is 258.
  const std::vector<std::vector<BFloat16>> inputs = {{bf16(256)}, {bf16(1)}, {bf16(1)}};
  EXPECT_EQ(widen(reduceThree<BFloat16, Sum>(inputs, false)[0]), 258);
  EXPECT_EQ(widen(reduceThree<BFloat16, Avg>(inputs, true)[0]), 86);
}

TEST(PacketReduce, AveragesOfIntegersWrapAroundAndAreRoundedTowardsZero) {
  for (const bool twoShot : {false, true}) {
    const std::vector<std::vector<i32>> numbers = {{-3, 5, 2147483647}, {-4, 5, 2}, {0, 1, 0}};
    EXPECT_EQ((reduceThree<i32, Avg>(numbers, twoShot)),
              (std::vector<i32>{-2, 3, -2147483647 / 3}));
    const std::vector<std::vector<u8>> bytes = {{200, 7}, {100, 8}, {0, 8}};
    EXPECT_EQ((reduceThree<u8, Avg>(bytes, twoShot)), (std::vector<u8>{44 / 3, 7}));
  }
}

TEST(PacketReduce, NanWinsInMinAndMax) {
  const f32 nan = __builtin_nanf("");
  const std::vector<std::vector<f32>> inputs = {{nan, 1, 1}, {2, nan, 5}, {3, 2, nan}};
  for (f32 x : reduceThree<f32, Min>(inputs, false)) EXPECT_TRUE(x != x);
  for (f32 x : reduceThree<f32, Max>(inputs, true)) EXPECT_TRUE(x != x);
}

TEST(PacketReduce, EveryOperationOnBytesAndLongs) {
  const std::vector<std::vector<u8>> bytes = {{200, 1, 12}, {100, 2, 10}, {3, 4, 6}};
  EXPECT_EQ((reduceThree<u8, Sum>(bytes, true)), (std::vector<u8>{47, 7, 28}));
  EXPECT_EQ((reduceThree<u8, BitAnd>(bytes, false)), (std::vector<u8>{200 & 100 & 3, 0, 0}));
  EXPECT_EQ((reduceThree<u8, BitOr>(bytes, false)), (std::vector<u8>{200 | 100 | 3, 7, 14}));
  EXPECT_EQ((reduceThree<u8, BitXor>(bytes, true)), (std::vector<u8>{200 ^ 100 ^ 3, 7, 0}));
  const std::vector<std::vector<i64>> longs = {{1ll << 40, -3}, {5, 7}, {2, 1}};
  EXPECT_EQ((reduceThree<i64, Product>(longs, true)), (std::vector<i64>{10ll << 40, -21}));
  EXPECT_EQ((reduceThree<i64, Min>(longs, false)), (std::vector<i64>{2, -3}));
  EXPECT_EQ((reduceThree<i64, Max>(longs, true)), (std::vector<i64>{1ll << 40, 7}));
}

TEST(PacketReduce, EveryRankHasItsOwnFactor) {
  const std::vector<std::vector<f32>> inputs = {{2}, {4}, {8}};
  EXPECT_EQ((reduceThree<f32, PremulSum>(inputs, false, {1, 0.5, 0.25})), (std::vector<f32>{6}));
}

/// Two of three ranks run; what ends them decides which error the report names.
void expectFailure(u32 reason, bool twoShot, u64 count = 30) {
  DeviceWorld world(3, kSlotBytes, 41, {2, 1});
  if (reason == kTimedOut) {
    for (u32 rank : {0, 1}) world.control(rank).timeoutNs = 20000000;
  }
  const std::vector<i32> input(30, 1);
  std::vector<std::vector<i32>> outputs(3, std::vector<i32>(30));
  std::atomic<int> entered{0};
  std::thread aborter([&] {
    if (reason != kAborted) return;
    while (entered < 4) std::this_thread::yield();
    for (u32 rank : {0, 1}) storeRelaxed(&world.control(rank).abort, 1u);
  });
  world.run(
      {0, 1}, 2,
      [](u32) {
        return DeviceWorld::Grid{2, 1};
      },
      [&](u32 rank, u32, const Block& block) {
        ++entered;
        allReduce<i32, Sum, 3>(twoShot, world.team(rank), block, input.data(), outputs[rank].data(),
                               count);
      });
  aborter.join();
  for (u32 rank : {0, 1}) {
    EXPECT_EQ(world.report(rank).state, reason);
    EXPECT_EQ(world.report(rank).epoch, 42u);
    // Of nothing there is one part, whose rank alone hears of all.
    const u32 missing = twoShot && count == 0 && rank == 1 ? 0 : 2;
    EXPECT_EQ(world.report(rank).waitedFor[missing], 42u);
    EXPECT_EQ(world.state(rank).failed, reason) << "later kernels must return at once";
  }
}

TEST(PacketAllReduce, AbortEndsEveryWaitAndNamesTheMissingRank) {
  expectFailure(kAborted, false);
  expectFailure(kAborted, true);
}

TEST(PacketAllReduce, DeadlineEndsEveryWaitAndNamesTheMissingRank) {
  expectFailure(kTimedOut, false);
  expectFailure(kTimedOut, true);
}

/// A rank that does not would be two operations ahead, and overwrite what another one still awaits.
TEST(PacketAllReduce, OneOfNothingAwaitsAllRanksToo) {
  expectFailure(kAborted, false, 0);
  expectFailure(kAborted, true, 0);
}

}  // namespace
}  // namespace ctran::device
