#include "ctran/topology/paths.h"

namespace ctran {

std::vector<int> ringOrder(const HostMap& map) {
  std::vector<int> order;
  order.reserve(map.size());
  for (int host = 0; host < map.hosts(); ++host) {
    order.insert(order.end(), map.ranks(host).begin(), map.ranks(host).end());
  }
  return order;
}

}  // namespace ctran
