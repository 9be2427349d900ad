// All-to-all of rows whose numbers the device alone knows, with threads of the host as blocks.
#include <gtest/gtest.h>

#include <numeric>

#include "ctran/collective/all_to_all/rows.cuh"
#include "tests/kernels/device_world.h"

namespace ctran::device {
namespace {

constexpr u64 kSlotBytes = 16 * 64;
constexpr u32 kFlows = 2;
constexpr u64 kRowBytes = 4001;  // of no alignment, and seldom a whole step

/// Rows that one rank sends another in operation k; some none, some several steps.
i64 rowsOf(u32 from, u32 to, u32 k) { return (from * 7 + to * 3 + k * 5) % 4 * (k % 2 ? 9 : 1); }

char byteOf(u32 from, u32 to, u32 k, u64 i) {
  return static_cast<char>(from * 61 + to * 17 + k * 7 + i * 3 + i / 256 + 1);
}

template <u32 kRanks>
struct Rows {
  std::vector<i64> counts[kRanks], expected[kRanks], received[kRanks];
  std::vector<char> in[kRanks], out[kRanks];

  explicit Rows(u32 k) {
    for (u32 r = 0; r < kRanks; ++r) {
      received[r].assign(kRanks, -1);
      u64 coming = 0;
      for (u32 p = 0; p < kRanks; ++p) {
        counts[r].push_back(rowsOf(r, p, k));
        expected[r].push_back(rowsOf(p, r, k));
        coming += rowsOf(p, r, k);
        for (u64 i = 0; i < rowsOf(r, p, k) * kRowBytes; ++i) in[r].push_back(byteOf(r, p, k, i));
      }
      out[r].assign((coming + 1) * kRowBytes, '#');
    }
  }

  /// Both kernels on every rank.
  void exchange(DeviceWorld& world, bool expects) {
    std::vector<u32> all(kRanks);
    std::iota(all.begin(), all.end(), 0);
    const u32 blocks = moveRowsFlows(kRanks, kFlows);
    world.run(
        all, 2,
        [&](u32 kernel) {
          return kernel == 0 ? DeviceWorld::Grid{1, blocks} : DeviceWorld::Grid{blocks, 1};
        },
        [&](u32 rank, u32 kernel, const Block& block) {
          if (kernel == 0) {
            CountRowsArguments a{};
            a.team = world.team(rank);
            a.sendCounts = counts[rank].data();
            a.expected = expects ? expected[rank].data() : nullptr;
            a.received = received[rank].data();
            a.inputRows = in[rank].size() / kRowBytes;
            a.outputRows = out[rank].size() / kRowBytes;
            a.rowBytes = kRowBytes;
            countRows<kRanks>(a, block);
          } else {
            moveRows({world.team(rank), in[rank].data(), out[rank].data(), kFlows}, block);
          }
        });
  }
};

template <u32 kRanks>
DeviceWorld worldFor() {
  return DeviceWorld(kRanks, kSlotBytes, 0, {moveRowsFlows(kRanks, kFlows), 1});
}

template <u32 kRanks>
void expectRows(u32 operations) {
  DeviceWorld world = worldFor<kRanks>();
  for (u32 k = 0; k < operations; ++k) {
    Rows<kRanks> rows(k);
    rows.exchange(world, k % 3 == 0);
    for (u32 r = 0; r < kRanks; ++r) {
      EXPECT_EQ(rows.received[r], rows.expected[r]);
      const char* got = rows.out[r].data();
      for (u32 p = 0; p < kRanks; ++p) {
        for (u64 i = 0; i < rowsOf(p, r, k) * kRowBytes; ++i, ++got) {
          ASSERT_EQ(*got, byteOf(p, r, k, i)) << k << ": rank " << r << " from " << p << ", " << i;
        }
      }
      for (; got != rows.out[r].data() + rows.out[r].size(); ++got) ASSERT_EQ(*got, '#');
    }
  }
}

TEST(DeviceRows, OneRank) { expectRows<1>(3); }
TEST(DeviceRows, TwoRanks) { expectRows<2>(6); }
TEST(DeviceRows, FourRanks) { expectRows<4>(4); }

/// All ranks refuse with the same words, and nobody writes.
void expectRefusal(const std::function<void(Rows<3>&)>& spoil, bool expects,
                   const Refusal& expected) {
  DeviceWorld world = worldFor<3>();
  Rows<3> rows(1);
  spoil(rows);
  rows.exchange(world, expects);
  for (u32 r = 0; r < 3; ++r) {
    EXPECT_EQ(world.report(r).state, kRefused);
    const Refusal& found = world.report(r).refusal;
    EXPECT_EQ(found.why, expected.why);
    EXPECT_EQ(found.from, expected.from);
    EXPECT_EQ(found.to, expected.to);
    EXPECT_EQ(found.amount, expected.amount);
    EXPECT_EQ(found.limit, expected.limit);
    EXPECT_EQ(std::count(rows.out[r].begin(), rows.out[r].end(), '#'),
              static_cast<i64>(rows.out[r].size()));
  }
}

TEST(DeviceRows, WhatHasNoRoomIsRefused) {
  const i64 rows = rowsOf(2, 1, 1);
  ASSERT_GT(rows, 0);
  const auto shorten = [](Rows<3>& one) {
    one.out[1].erase(one.out[1].end() - 2 * kRowBytes, one.out[1].end());
  };
  expectRefusal(shorten, false, {kRefusedRoom, 2, 1, 0, rows, rows - 1});
}

TEST(DeviceRows, WhatIsNotExpectedIsRefused) {
  const i64 rows = rowsOf(0, 2, 1);
  expectRefusal([&](Rows<3>& one) { one.expected[2][0] = rows + 1; }, true,
                {kRefusedExpected, 0, 2, 0, rows, rows + 1});
}

TEST(DeviceRows, WhatTheInputLacksIsRefused) {
  const i64 first = rowsOf(0, 0, 1), all = first + rowsOf(0, 1, 1) + rowsOf(0, 2, 1);
  constexpr i64 kHuge = (1ll << 62) + 5;
  expectRefusal([&](Rows<3>& one) { one.counts[0][1] = kHuge; }, false,
                {kRefusedSend, 0, 1, 0, kHuge, all - first});
  expectRefusal([&](Rows<3>& one) { one.counts[0][1] = -3; }, false,
                {kRefusedSend, 0, 1, 0, -3, all - first});
}

}  // namespace
}  // namespace ctran::device
