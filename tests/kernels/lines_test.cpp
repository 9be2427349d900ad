// The protocol of reductions in lines, with threads of the host as blocks. Unused lines are wiped
// every few operations here instead of every 2^30.
#define CTRAN_SCRUB_EVERY 8u
#include "ctran/collective/reduce/lines.cuh"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

#include "tests/kernels/device_world.h"

namespace ctran::device {
namespace {

constexpr u64 kSlotBytes = 1024;
constexpr u64 kUnitElements = kUnitWords * 4;
constexpr i32 kPoison = -77;

i32 valueOf(u32 rank, u32 k, u64 i) { return static_cast<i32>(rank * 1000003 + k * 31 + i * 7); }

struct Call {
  u64 count;
  u32 share;  ///< a mask of ranks; 0: every rank gets its part
  u32 shift;  ///< elements from where memory is aligned
  bool inPlace;
};

/// Every operation's outputs on every rank are the sums of what they should get, and nothing else
/// has been written.
template <u32 kRanks>
void expectSums(const std::vector<Call>& calls, DeviceWorld::Grid grid, u32 firstEpoch = 0) {
  const u32 operations = static_cast<u32>(calls.size());
  DeviceWorld world(kRanks, kSlotBytes, firstEpoch, grid);
  std::vector<std::vector<std::vector<i32>>> in(kRanks), out(kRanks);
  const auto partOf = [](u64 count) { return ((count + kRanks - 1) / kRanks + 3) / 4 * 4; };
  for (u32 r = 0; r < kRanks; ++r) {
    for (u32 k = 0; k < operations; ++k) {
      const u64 room = calls[k].count + calls[k].shift + 1;
      in[r].emplace_back(room);
      for (u64 i = 0; i < room; ++i) in[r][k][i] = valueOf(r, k, i);
      out[r].push_back(calls[k].inPlace ? in[r][k] : std::vector<i32>(room, kPoison));
    }
  }
  std::vector<u32> all(kRanks);
  std::iota(all.begin(), all.end(), 0);
  world.run(
      all, operations, [&](u32) { return grid; },
      [&](u32 rank, u32 k, const Block& block) {
        const Call& call = calls[k];
        const u64 part = partOf(call.count);
        ReduceArguments a{};
        a.team = world.team(rank);
        a.shareWith = call.share;
        a.most = 1;
        for (u32 p = 0; p < kRanks; ++p) {
          const u64 begin = std::min(call.count, p * part);
          const bool gets = call.share == 0 ? p == rank : (call.share >> rank & 1) != 0;
          a.counts[p] = std::min(call.count, begin + part) - begin;
          a.parts[p] = (call.inPlace ? out : in)[rank][k].data() + call.shift + begin;
          a.outputs[p] = gets ? out[rank][k].data() + call.shift + begin : nullptr;
          a.packets[p] =
              static_cast<u32>(std::max<u64>(1, (a.counts[p] + kUnitElements - 1) / kUnitElements));
          a.most = std::max(a.most, a.packets[p]);
        }
        reduceLines<i32, Sum, kRanks>(a, block);
      });
  for (u32 r = 0; r < kRanks; ++r) {
    for (u32 k = 0; k < operations; ++k) {
      const Call& call = calls[k];
      for (u64 at = 0; at < call.count + call.shift + 1; ++at) {
        const u64 i = at - call.shift;  // before the first: a large number
        const bool gets = i < call.count && (call.share == 0 ? i / partOf(call.count) == r
                                                             : (call.share >> r & 1) != 0);
        i32 expected = call.inPlace ? valueOf(r, k, at) : kPoison;
        if (gets) {
          expected = 0;
          for (u32 p = 0; p < kRanks; ++p) expected += valueOf(p, k, at);
        }
        ASSERT_EQ(out[r][k][at], expected)
            << "rank " << r << ", operation " << k << ", element " << at;
      }
    }
    u32 epoch = firstEpoch;
    for (u32 k = 0; k < operations; ++k) epoch = nextEpoch(epoch);
    for (u32 copy : world.state(r).epoch) ASSERT_EQ(copy, epoch);
  }
}

template <u32 kRanks>
std::vector<Call> mixed(u32 operations) {
  std::vector<Call> calls;
  const u64 room = DeviceWorld::kLineBytes / kRanks / (2 * kUnitSlots * 16) * kUnitElements;
  for (u32 k = 0; k < operations; ++k) {
    const u32 share = k % 3 == 0 ? (1u << kRanks) - 1 : k % 3 == 1 ? 0 : 1u << k % kRanks;
    calls.push_back({1 + k * 997 % (kRanks * room), share, k % 2, k % 5 == 0});
  }
  return calls;
}

TEST(ReduceLines, TwoRanks) { expectSums<2>(mixed<2>(60), {2, 2}); }
TEST(ReduceLines, ThreeRanks) { expectSums<3>(mixed<3>(40), {1, 2}); }
TEST(ReduceLines, FourRanks) { expectSums<4>(mixed<4>(30), {2, 1}); }
TEST(ReduceLines, OneRankIsACopy) { expectSums<1>(mixed<1>(5), {2, 1}); }
TEST(ReduceLines, EpochsMayWrapAround) { expectSums<2>(mixed<2>(40), {1, 1}, 0xfffffff0u); }

/// Lines still hold what was put there 2^32 operations ago: the very flags that are expected now.
/// The peer never sends, so whoever believes them finishes, with wrong data.
TEST(ReduceLines, FlagsFromBeforeTheWrapAreWipedInTime) {
  const u32 first = 5, last = 14;  // operations 9, 10 and 11 wipe
  DeviceWorld world(2, kSlotBytes, first - 1, {1, 1});
  UnitPart part;
  for (Word16& word : part.w) word = {{666, 666, 666, 666}};
  storeUnit(Warp{}, linesOf(world.team(0), last, 1, 0), part, last);
  const std::vector<i32> input(2 * kUnitElements, 21);
  std::vector<std::vector<i32>> outputs(2, input);
  const auto reduce = [&](u32 rank, u32, const Block& block) {
    ReduceArguments a{};
    a.team = world.team(rank);
    a.most = 1;
    for (u32 p = 0; p < 2; ++p) {
      a.parts[p] = input.data() + p * kUnitElements;
      a.counts[p] = kUnitElements;
      a.packets[p] = 1;
    }
    a.outputs[rank] = outputs[rank].data();
    reduceLines<i32, Sum, 2>(a, block);
  };
  const auto grid = [](u32) { return DeviceWorld::Grid{1, 1}; };
  world.run({0, 1}, last - first, grid, reduce);
  EXPECT_EQ(outputs[0][0], 42);
  world.control(0).timeoutNs = 20000000;
  outputs[0] = input;
  world.run({0}, 1, grid, reduce);
  EXPECT_EQ(outputs[0], input);
  EXPECT_EQ(world.report(0).state, kTimedOut);
  EXPECT_EQ(world.report(0).epoch, last);
}

}  // namespace
}  // namespace ctran::device
