// The quantized reduce-scatter with threads of the host as blocks, against a model of it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "ctran/collective/reduce_scatter/quantized.cuh"
#include "tests/kernels/device_world.h"

namespace ctran::device {
namespace {

constexpr u64 kSlotBytes = 16 * 64;

/// As in Random123's own table of known answers.
TEST(Quantized, PhiloxGivesTheKnownAnswers) {
  const Word16 zeros = philox({}, 0);
  EXPECT_EQ(zeros.w[0], 0x6627e8d5u);
  EXPECT_EQ(zeros.w[1], 0xe169c58du);
  EXPECT_EQ(zeros.w[2], 0xbc57ac4cu);
  EXPECT_EQ(zeros.w[3], 0x9b00dbd8u);
  const Word16 ones = philox({{~0u, ~0u, ~0u, ~0u}}, ~0ull);
  EXPECT_EQ(ones.w[0], 0x408f276du);
  EXPECT_EQ(ones.w[1], 0x41c83b0eu);
  EXPECT_EQ(ones.w[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.w[3], 0x6d5451fdu);
}

TEST(Quantized, RoundsUpAsOftenAsTheDistanceSays) {
  for (const u32 distance : {0u, 1u, 0x4000u, 0xffffu}) {
    for (const u32 upper : {0x3f80u, 0xbf80u, 0x0000u, 0x8001u}) {
      u32 up = 0;
      for (u32 random = 0; random < 65536; ++random) {
        up += roundAtRandom(bitCast<float>(upper << 16 | distance), random) == upper + 1;
      }
      EXPECT_EQ(up, distance);
    }
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(roundAtRandom(infinity, 65535), 0x7f80u);
  EXPECT_EQ(roundAtRandom(-infinity, 65535), 0xff80u);
  EXPECT_EQ(roundAtRandom(std::numeric_limits<float>::max(), 65535), 0x7f7fu);
  EXPECT_EQ(roundAtRandom(bitCast<float>(0x7f800001u), 0) & 0x7fffu, 0x7fc0u);
}

float elementOf(u32 rank, u32 part, u64 i) {
  return std::sin(static_cast<float>(rank * 31 + part * 7 + i)) * static_cast<float>(1 + i % 1000);
}

/// What arrives of it.
float arrived(u32 from, u32 to, u64 i, u64 seed) {
  const u64 word = i / 8;
  const Word16 random =
      philox({{static_cast<u32>(word), static_cast<u32>(word >> 32), from, to}}, seed);
  const u32 bits = random.w[i % 8 / 2] >> i % 2 * 16 & 0xffff;
  return bitCast<float>(roundAtRandom(elementOf(from, to, i), bits) << 16);
}

template <u32 kRanks>
void expectSums(u64 count, u32 flows, u32 shift, bool average, u32 firstStep) {
  constexpr u64 kSeed = 0x123456789abcdef0ull;
  constexpr u32 kChunkBytes = 4096;
  DeviceWorld world(kRanks, kSlotBytes, 0, {flows, 1}, firstStep);
  std::vector<std::vector<float>> in(kRanks), out(kRanks);
  for (u32 r = 0; r < kRanks; ++r) {
    in[r].resize(shift);
    for (u32 p = 0; p < kRanks; ++p) {
      for (u64 i = 0; i < count; ++i) in[r].push_back(elementOf(r, p, i));
    }
    out[r].assign(count + shift + 1, -77);
  }
  std::vector<u32> all(kRanks);
  std::iota(all.begin(), all.end(), 0);
  world.run(
      all, 3,
      [&](u32) {
        return DeviceWorld::Grid{flows, 1};
      },
      [&](u32 rank, u32 k, const Block& block) {
        QuantizedArguments a{};
        a.team = world.team(rank);
        for (u32 p = 0; p < kRanks; ++p) a.parts[p] = in[rank].data() + shift + p * count;
        a.output = out[rank].data() + shift;
        a.count = count;
        a.seed = k == 2 ? kSeed : k;
        a.chunkBytes = kChunkBytes;
        a.chunks = (2 * count + kChunkBytes - 1) / kChunkBytes;
        a.flows = std::min<u32>(flows, static_cast<u32>(a.chunks));
        a.average = average ? 1 : 0;
        Block launched = block;  // rows leave a flow too many where flows are odd, on some ranks
        if (rank == 0) ++launched.count;
        reduceQuantized<kRanks>(a, launched);
      });
  for (u32 r = 0; r < kRanks; ++r) {
    for (u64 i = 0; i < count; ++i) {
      float sum = 0;
      for (u32 p = 0; p < kRanks; ++p) {
        const float x = p == r ? elementOf(r, r, i) : arrived(p, r, i, kSeed);
        sum = p == 0 ? x : sum + x;
      }
      ASSERT_EQ(out[r][i + shift], average ? sum / kRanks : sum) << "rank " << r << ", " << i;
    }
    ASSERT_EQ(out[r][count + shift], -77) << "an element too many";
  }
}

TEST(Quantized, OneRankIsACopy) { expectSums<1>(5001, 2, 0, false, 0); }
TEST(Quantized, TwoRanks) { expectSums<2>(50001, 2, 0, false, 0xfffffffdu); }
TEST(Quantized, ThreeRanksOfNoAlignment) { expectSums<3>(20005, 3, 1, true, 0); }
TEST(Quantized, MoreBlocksThanChunks) { expectSums<2>(3, 2, 0, false, 7); }

}  // namespace
}  // namespace ctran::device
