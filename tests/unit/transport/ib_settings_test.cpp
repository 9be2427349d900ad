#include "ctran/transport/ib/settings.h"

#include <gtest/gtest.h>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/transport/ib/device.h"

namespace ctran {
namespace {

TEST(HcaFilter, TakesPrefixesExactNamesAndExclusions) {
  struct {
    const char* text;
    const char* device;
    int port;
    bool allowed;
  } const cases[] = {
      {"", "mlx5_0", 1, true},
      {"mlx5", "mlx5_10", 2, true},
      {"mlx5", "bnxt_re0", 1, false},
      {"mlx5_1", "mlx5_10", 1, true},
      {"=mlx5_1", "mlx5_10", 1, false},
      {"=mlx5_0:1", "mlx5_0", 1, true},
      {"=mlx5_0:1", "mlx5_0", 2, false},
      {"=mlx5_0:1,mlx5_1", "mlx5_1", 2, true},
      {"^mlx5_3", "mlx5_3", 1, false},
      {"^mlx5_3", "mlx5_2", 1, true},
      {"^=mlx5_3:1,mlx5_4", "mlx5_3", 2, true},
      {"^=mlx5_3:1,mlx5_4", "mlx5_4", 2, false},
      {" =mlx5_0 , mlx5_1:1 ", "mlx5_1", 1, true},
  };
  for (const auto& each : cases) {
    EXPECT_EQ(HcaFilter(each.text).allows(each.device, each.port), each.allowed)
        << each.text << " " << each.device << ":" << each.port;
  }
}

TEST(HcaFilter, RefusesWhatNamesNoDevice) {
  for (const char* text : {"mlx5_0:x", "mlx5_0:0", "mlx5_0:", "mlx5_0:1:1", ":1", "^", "=", ",",
                           " ", "=^mlx5_0", "^^mlx5_0", "mlx5_0,^mlx5_1", "mlx5_0,=mlx5_1"}) {
    EXPECT_THROW(HcaFilter{text}, Error) << text;
    EXPECT_THROW(findConfig("CTRAN_IB_HCA")->check(text), Error) << text;
  }
}

TEST(HintedFailOver, IsSaidByTheHintAloneOrNotAtAll) {
  EXPECT_EQ(hintedFailOver({}), std::nullopt);
  EXPECT_EQ(hintedFailOver({{"ctran::ib_fail_over", "0"}}), false);
  EXPECT_EQ(hintedFailOver({{"ctran::ib_fail_over", "1"}}), true);
  EXPECT_THROW(hintedFailOver({{"ctran::ib_fail_over", "no"}}), Error);
}

ibverbx::ibv_gid_entry entryOf(uint32_t index, std::initializer_list<uint8_t> start, uint8_t tenth,
                               uint32_t type) {
  ibverbx::ibv_gid_entry entry{};
  std::copy(start.begin(), start.end(), entry.gid.raw);
  entry.gid.raw[10] = entry.gid.raw[11] = tenth;
  entry.gid.raw[15] = 7;
  entry.gid_index = index;
  entry.gid_type = type;
  return entry;
}

TEST(ChooseGid, PrefersRoutableAddressesOfRoceVersion2) {
  const auto linkLocal = entryOf(0, {0xfe, 0x80}, 0, ibverbx::IBV_GID_TYPE_ROCE_V2);
  const auto old = entryOf(1, {}, 0xff, ibverbx::IBV_GID_TYPE_ROCE_V1);
  const auto ipv6 = entryOf(2, {0x20, 0x01}, 0, ibverbx::IBV_GID_TYPE_ROCE_V2);
  const auto ipv4 = entryOf(3, {}, 0xff, ibverbx::IBV_GID_TYPE_ROCE_V2);
  EXPECT_EQ(chooseGid({linkLocal, old, ipv6, ipv4}, true), 3);
  EXPECT_EQ(chooseGid({linkLocal, old, ipv6}, true), 2);
  EXPECT_EQ(chooseGid({linkLocal, old}, true), 0);
  EXPECT_EQ(chooseGid({old}, true), 1);
  EXPECT_EQ(chooseGid({ipv6, ipv4}, false), 2);
  EXPECT_EQ(chooseGid({}, true), -1);
}

}  // namespace
}  // namespace ctran
