#include <algorithm>

#include "ctran/collective/hosts_algorithms.h"
#include "ctran/collective/preference.h"
#include "ctran/collective/shm_algorithms.h"

namespace ctran {
namespace {

using Kind = CollectiveKind;

/// The algorithm that goes through shared memory inside the hosts; null if there is none.
HostsAlgorithm groupAlgorithm(Kind kind) {
  switch (kind) {
    case Kind::Barrier:
      return barrierGroup;
    case Kind::Broadcast:
      return broadcastGroup;
    case Kind::AllReduce:
      return allReduceGroup;
    case Kind::Reduce:
      return reduceGroup;
    case Kind::AllGather:
    case Kind::AllGatherV:
      return allGatherGroup;
    case Kind::ReduceScatter:
    case Kind::ReduceScatterV:
      return reduceScatterGroup;
    case Kind::Scatter:
      return scatterGroup;
    case Kind::Gather:
      return gatherGroup;
    case Kind::AllToAll:
    case Kind::AllToAllV:
      return allToAllGroup;
    case Kind::Send:
    case Kind::Recv:
    case Kind::WaitSignal:
    case Kind::AllToAllVDynamic:  // do so in any case
    case Kind::AllToAllVCombine:
      break;
  }
  return nullptr;
}

/// The steps of the group algorithms, by the cost models of shared memory and of the network.
class GroupCost {
 public:
  GroupCost(const HostMap& map, bool partialSums)
      : map_(map), partialSums_(partialSums), ranks_(largestHost(map)) {}

  double micros(Kind kind, double bytes) const {
    const double rails = map_.rails(), hosts = map_.hosts(), all = hosts * ranks_;
    switch (kind) {
      case Kind::Barrier:
        return 2 * inside(kind, 0) + between(kind, 0, 1);
      case Kind::Broadcast:
        return inside(kind, bytes) + between(kind, bytes / rails, rails) +
               inside(Kind::AllGather, bytes / rails);
      case Kind::AllReduce:
        return inside(Kind::ReduceScatter, bytes) + between(kind, bytes / rails, rails) +
               inside(Kind::AllGather, bytes / rails);
      case Kind::Reduce:
        return inside(kind, bytes) + between(kind, bytes, 1);
      case Kind::AllGather:
      case Kind::AllGatherV:
        return inside(kind, bytes) + between(kind, bytes, ranks_) +
               (hosts - 1) * inside(kind, bytes);
      case Kind::ReduceScatter:
      case Kind::ReduceScatterV:
        return hosts * inside(kind, bytes / hosts) + between(kind, bytes / ranks_, ranks_);
      case Kind::Scatter:
        return inside(kind, bytes / hosts) + straight(kind, bytes * (all - ranks_) / all, 1);
      case Kind::Gather:
        return inside(kind, bytes) + straight(kind, bytes * (all - ranks_), 1);
      default:
        return inside(Kind::AllToAll, bytes / hosts) +
               straight(kind, bytes * (all - ranks_) / all, ranks_);
    }
  }

 private:
  static int largestHost(const HostMap& map) {
    size_t most = 1;
    for (int h = 0; h < map.hosts(); ++h) most = std::max(most, map.ranks(h).size());
    return static_cast<int>(most);
  }
  double inside(Kind kind, double bytes) const {
    if (ranks_ == 1) return 0;
    double us = 0;
    cheapestShm(kind, static_cast<size_t>(bytes), ranks_, false, &us);
    return us;
  }
  double between(Kind kind, double bytes, double sharing) const {
    double us = 0;
    cheapestNet(kind, static_cast<size_t>(bytes), map_.hosts(), partialSums_,
                static_cast<int>(sharing), &us);
    return us;
  }
  /// To, or from, each rank of the other hosts.
  double straight(Kind kind, double bytes, int sharing) const {
    const int peers = (map_.hosts() - 1) * ranks_;
    const bool eachToEach = kind == Kind::AllToAll || kind == Kind::AllToAllV;
    return NetLoad{1, static_cast<double>(peers), bytes, 0, crowdOf(peers + 1, eachToEach)}.micros(
        sharing);
  }

  const HostMap& map_;
  const bool partialSums_;
  const int ranks_;  // of the largest host
};

}  // namespace

bool isReduction(Kind kind) {
  return kind == Kind::AllReduce || kind == Kind::Reduce || kind == Kind::ReduceScatter ||
         kind == Kind::ReduceScatterV;
}

std::vector<HostsChoice> hostsChoices(Kind kind, const HostMap& map) {
  std::vector<HostsChoice> choices;
  if (const HostsAlgorithm group = groupAlgorithm(kind); group != nullptr && map.isShared()) {
    const bool scatters = kind == Kind::ReduceScatter || kind == Kind::ReduceScatterV;
    choices.push_back(
        {kGroup, group, nullptr, isReduction(kind),
         scatters && !map.isEven() ? "the hosts have different numbers of ranks" : ""});
  }
  for (const NetChoice& choice : netChoices(kind)) {
    choices.push_back({choice.name, nullptr, &choice, choice.sumsPartially, {}});
  }
  return choices;
}

double microsOf(const HostsChoice& choice, Kind kind, size_t bytes, const HostMap& map,
                bool partialSums) {
  if (choice.group != nullptr) {
    return GroupCost(map, partialSums).micros(kind, static_cast<double>(bytes));
  }
  const int size = map.size();
  return microsOf(*choice.net, bytes, size, (size + map.hosts() - 1) / map.hosts());
}

Task startBetweenHosts(HostsContext& hosts, const Collective& c, const HostsChoice& choice) {
  if (choice.group != nullptr) return choice.group(hosts, c);
  hosts.all.prepare(hosts.all.size);
  return choice.net->run(hosts.all, c);
}

}  // namespace ctran
