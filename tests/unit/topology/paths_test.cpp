#include "ctran/topology/paths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace ctran::testing {
namespace {

/// Ranks r and r + groups are neighbours: placed round robin over the groups.
RankDistance roundRobin(int groups) {
  return [groups](int a, int b) { return a == b ? 0 : a % groups == b % groups ? 1 : 10; };
}

TEST(RingOrder, GoesThroughEveryGroupOnce) {
  for (const int groups : {1, 2, 3, 4}) {
    for (const int size : {1, 2, 3, 4, 12, 24}) {
      const auto distance = roundRobin(groups);
      const std::vector<int> order = ringOrder(size, distance);
      EXPECT_EQ(std::set<int>(order.begin(), order.end()).size(), static_cast<size_t>(size));
      EXPECT_EQ(order[0], 0);
      int longEdges = 0;
      for (int i = 0; i < size; ++i) {
        longEdges += distance(order[i], order[(i + 1) % size]) == 10 ? 1 : 0;
      }
      EXPECT_LE(longEdges, std::min(groups, size)) << size << " ranks, " << groups << " groups";
    }
  }
}

TEST(RingOrder, FindsALineAndItsWayBack) {
  const std::vector<int> at{0, 50, 10, 40, 20, 30};
  const auto distance = [&](int a, int b) { return std::abs(at[a] - at[b]); };
  const std::vector<int> order = ringOrder(6, distance);
  int length = 0;
  for (int i = 0; i < 6; ++i) length += distance(order[i], order[(i + 1) % 6]);
  EXPECT_EQ(length, 100);
}

TEST(TreeParents, LongEdgesAreGoneOncePerGroup) {
  for (const int groups : {1, 2, 3, 5}) {
    for (const int size : {1, 2, 7, 16, 30}) {
      for (const int root : {0, size - 1}) {
        const auto distance = roundRobin(groups);
        const std::vector<int> parents = treeParents(size, root, distance);
        EXPECT_EQ(parents[root], -1);
        int longEdges = 0;
        for (int r = 0; r < size; ++r) {
          int at = r, steps = 0;
          while (parents[at] >= 0 && steps++ <= size) at = parents[at];
          EXPECT_EQ(at, root) << "from " << r;
          if (r != root) longEdges += distance(r, parents[r]) == 10 ? 1 : 0;
        }
        EXPECT_EQ(longEdges, std::min(groups, size) - 1);
      }
    }
  }
}

}  // namespace
}  // namespace ctran::testing
