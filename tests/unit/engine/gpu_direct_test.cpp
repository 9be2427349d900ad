// GPUDirect RDMA: what a peer says of its memory.

#include "ctran/engine/gpu_direct.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

constexpr size_t kBytes = 1 << 20;

RdmaKey keyOf(uint64_t address, uint64_t bytes) { return {7, address, bytes, {0x101, 0x202}}; }

TEST(GpuDirectTest, AnAreaAsLargeAsOursIsTakenAsItIsOffered) {
  const RdmaRemote area = offeredArea(keyOf(0x7000'0000, kBytes).text(), kBytes, 3);
  EXPECT_EQ(area.address, 0x7000'0000u);
  EXPECT_EQ(area.bytes, kBytes);
  EXPECT_EQ(RdmaKey::parse(area.key).rkeys, (std::vector<uint32_t>{0x101, 0x202}));
}

TEST(GpuDirectTest, ForgedOffersAreRefusedAndTheirRankIsNamed) {
  const std::string good = keyOf(0x7000'0000, kBytes).text();
  const std::string forged[] = {
      "",
      "rdma",
      good.substr(0, good.size() / 2) + "~",
      good + ":",
      good + std::string(4000, '0'),
      keyOf(0x7000'0000, kBytes - 1).text(),          // less than the steps have
      keyOf(0x7000'0000, kBytes + 1).text(),          // more, of which no step makes use
      keyOf(0x7000'0000, 0).text(),                   // nothing
      keyOf(UINT64_MAX - kBytes + 2, kBytes).text(),  // beyond the end of all addresses
      RdmaKey{7, 0x7000'0000, kBytes, {}}.text(),     // of no device
  };
  for (const std::string& offer : forged) {
    const Error error = errorOf([&] { offeredArea(offer, kBytes, 3); });
    EXPECT_EQ(error.kind(), ErrorKind::System) << offer;
    EXPECT_EQ(error.ranks(), std::vector<int>{3}) << offer;
    EXPECT_NE(std::string(error.what()).find("rank 3"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ctran::testing
