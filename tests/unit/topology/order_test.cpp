#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "ctran/topology/host_map.h"

namespace ctran::testing {
namespace {

/// Placed round robin over the hosts.
HostMap roundRobin(int size, int hosts, int rank) {
  std::vector<std::string> names;
  for (int r = 0; r < size; ++r) names.push_back("host" + std::to_string(r % hosts));
  return {names, rank, size};
}

/// The order in which rings and trees over the network number the ranks.
std::vector<int> orderOf(const HostMap& map) {
  std::vector<int> order;
  for (int place = 0; place < map.size(); ++place) order.push_back(map.at(place));
  return order;
}

TEST(OrderOfHosts, LeavesEveryHostOnce) {
  for (const int hosts : {1, 2, 3, 4}) {
    for (const int size : {1, 2, 3, 4, 12, 24}) {
      const HostMap map = roundRobin(size, hosts, 0);
      const std::vector<int> order = orderOf(map);
      EXPECT_EQ(std::set<int>(order.begin(), order.end()).size(), static_cast<size_t>(size));
      EXPECT_EQ(order[0], 0);
      int crossings = 0;
      for (int i = 0; i < size; ++i) {
        crossings += map.hostOf(order[i]) != map.hostOf(order[(i + 1) % size]) ? 1 : 0;
      }
      EXPECT_EQ(crossings, map.hosts() == 1 ? 0 : map.hosts()) << size << " ranks";
    }
  }
}

TEST(OrderOfHosts, IsTheSameOnAllRanks) {
  for (int rank = 0; rank < 12; ++rank) {
    EXPECT_EQ(orderOf(roundRobin(12, 3, rank)), orderOf(roundRobin(12, 3, 0)));
  }
}

}  // namespace
}  // namespace ctran::testing
