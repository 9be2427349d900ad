#include "ctran/topology/host_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

/// Hosts of one, two, three ... ranks in turn, far apart from each other.
std::vector<int> uneven(int size) {
  std::vector<int> hosts;
  for (int r = 0; r < size; ++r) hosts.push_back(r * r % 7);
  return hosts;
}

TEST(HostMap, KnowsTheRanksOfEachHostWhateverTheirOrder) {
  constexpr int kSize = 100, kMost = 8;
  const std::vector<int> hosts = uneven(kSize);
  const HostMap map(hosts, 13, kMost);
  ASSERT_EQ(map.size(), kSize);
  int ranks = 0, place = 0;
  for (int h = 0; h < map.hosts(); ++h) {
    const auto of = map.ranks(h);
    ASSERT_FALSE(of.empty());
    EXPECT_LE(static_cast<int>(of.size()), kMost);
    EXPECT_TRUE(std::is_sorted(of.begin(), of.end()));
    if (h > 0) {
      EXPECT_LT(map.ranks(h - 1)[0], of[0]) << "hosts are in the order of first ranks";
    }
    for (size_t i = 0; i < of.size(); ++i, ++place) {
      EXPECT_EQ(map.hostOf(of[i]), h);
      EXPECT_EQ(map.indexOf(of[i]), static_cast<int>(i));
      EXPECT_EQ(hosts[of[i]], hosts[of[0]]);
      EXPECT_EQ(map.at(place), of[i]);
      EXPECT_EQ(map.placeOf(of[i]), place);
    }
    ranks += static_cast<int>(of.size());
  }
  EXPECT_EQ(ranks, kSize);
  EXPECT_EQ(map.local()[map.index()], 13);
  EXPECT_FALSE(map.isInOrder());
  EXPECT_TRUE(HostMap(std::vector{0, 0, 1, 1}, 0, kMost).isInOrder());
}

TEST(HostMap, CanBeSharedByTheRanksOfAHost) {
  const HostMap first(uneven(50), 4, 8);
  const auto image = first.image();
  std::shared_ptr<int[]> memory(new int[image.size()]);
  std::copy(image.begin(), image.end(), memory.get());
  for (int rank = 0; rank < 50; ++rank) {
    const HostMap same(memory, image.size(), rank, 50);
    EXPECT_EQ(same.host(), first.hostOf(rank));
    EXPECT_EQ(same.local()[same.index()], rank);
    EXPECT_EQ(same.shape(), first.shape());
    EXPECT_EQ(same.rails(), first.rails());
  }
}

TEST(HostMap, ThatSomebodyHasChangedIsNotUsed) {
  const HostMap first(uneven(50), 4, 8);
  const auto image = first.image();
  std::shared_ptr<int[]> memory(new int[image.size()]);
  std::copy(image.begin(), image.end(), memory.get());
  const auto kindOf = [&](size_t count, int size) {
    return errorOf([&] { HostMap(memory, count, 0, size); }).kind();
  };
  EXPECT_EQ(kindOf(image.size() - 1, 50), ErrorKind::System);
  EXPECT_EQ(kindOf(image.size(), 49), ErrorKind::System);
  // Every number of it, but whether it is in order, which changes no more than the way.
  for (size_t i = 0; i < image.size(); ++i) {
    if (i == 3) continue;
    for (const int other : {-1, image[i] + 1, 1'000'000}) {
      memory[i] = other;
      EXPECT_EQ(kindOf(image.size(), 50), ErrorKind::System) << i << ": " << other;
    }
    memory[i] = image[i];
  }
}

}  // namespace
}  // namespace ctran::testing
