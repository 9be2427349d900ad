#include "ctran/topology/paths.h"

namespace ctran {

std::vector<int> ringOrder(const HostMap& map) {
  std::vector<int> order;
  order.reserve(map.size());
  for (int host = 0; host < map.hosts(); ++host) {
    const auto ranks = map.ranks(host);
    order.insert(order.end(), ranks.begin(), ranks.end());
  }
  return order;
}

}  // namespace ctran
