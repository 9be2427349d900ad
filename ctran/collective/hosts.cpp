#include "ctran/collective/all_to_all/rows.h"
#include "ctran/collective/hosts_algorithms.h"
#include "ctran/collective/tcp_algorithms.h"

namespace ctran {
namespace {

/// The algorithm that goes through shared memory inside the hosts; null if there is none.
HostsAlgorithm groupAlgorithm(const HostMap& map, const Collective& c) {
  using Kind = CollectiveKind;
  switch (c.kind) {
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
      return map.isEven() ? reduceScatterGroup : nullptr;
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

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce || kind == CollectiveKind::Reduce ||
         kind == CollectiveKind::ReduceScatter || kind == CollectiveKind::ReduceScatterV;
}

}  // namespace

Task startBetweenHosts(HostsContext& hosts, const Collective& c,
                       const HostsPreference& preference) {
  if (c.rows) return exchangeRows(hosts.beginRows(), c);
  const bool inRankOrder = preference.inRankOrder() && reduces(c.kind);
  const std::string& name = preference.algorithm(c.kind);
  const bool sumsPartially =
      !reduces(c.kind) || (!inRankOrder && (name == kGroup || toleratesPartialSums(c)));
  if (hosts.isShared() && sumsPartially && (name.empty() || name == kGroup)) {
    const HostsAlgorithm group = groupAlgorithm(hosts.map, c);
    if (group != nullptr) return group(hosts, c);
  }
  hosts.all.prepare(hosts.all.size);
  return chooseTcpAlgorithm(c, hosts.all.size, name, inRankOrder)(hosts.all, c);
}

}  // namespace ctran
