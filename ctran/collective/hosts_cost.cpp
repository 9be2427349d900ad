#include "ctran/collective/hosts_cost.h"

#include <algorithm>

#include "ctran/collective/net_cost.h"
#include "ctran/collective/registry.h"
#include "ctran/topology/host_map.h"

namespace ctran {
namespace {

double largestHost(const HostMap& map) {
  size_t most = 1;
  for (int h = 0; h < map.hosts(); ++h) most = std::max(most, map.ranks(h).size());
  return static_cast<double>(most);
}

}  // namespace

GroupCost::GroupCost(const AlgorithmQuery& q)
    : bytes(static_cast<double>(q.bytes)),
      hosts(q.map->hosts()),
      rails(q.map->rails()),
      ranks(largestHost(*q.map)),
      partialSums_(q.partialSums) {}

double GroupCost::inside(CollectiveKind kind, double bytes) const {
  if (ranks == 1) return 0;
  double us = 0;
  cheapestAlgorithm(AlgorithmPlace::SharedMemory,
                    {kind, static_cast<size_t>(bytes), static_cast<int>(ranks)}, false, &us);
  return us;
}

double GroupCost::between(CollectiveKind kind, double bytes, double sharing) const {
  double us = 0;
  cheapestAlgorithm(AlgorithmPlace::Network,
                    {kind, static_cast<size_t>(bytes), static_cast<int>(hosts),
                     static_cast<int>(sharing), partialSums_},
                    false, &us);
  return us;
}

double GroupCost::straight(CollectiveKind kind, double bytes, int sharing) const {
  const auto peers = static_cast<int>((hosts - 1) * ranks);
  const bool eachToEach = kind == CollectiveKind::AllToAll || kind == CollectiveKind::AllToAllV;
  return netMicros({.sharing = sharing},
                   {1, static_cast<double>(peers), bytes, 0, crowdOf(peers + 1, eachToEach)});
}

}  // namespace ctran
