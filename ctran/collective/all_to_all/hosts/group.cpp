#include "ctran/collective/algorithm.h"
#include "ctran/collective/all_to_all/net/direct.h"
#include "ctran/collective/hosts_context.h"
#include "ctran/collective/hosts_cost.h"
#include "ctran/collective/preference.h"

namespace ctran {
namespace {

/// For all_to_all and all_to_all_v. Blocks for ranks of this host go through shared memory, those
/// for others straight to them meanwhile. Every byte travels once.
Task allToAllGroup(HostsContext& hosts, const Collective& c) {
  const std::vector<int>& ranks = hosts.map.local();
  Collective inside = c;
  inside.inputs.clear();
  inside.outputs.clear();
  for (const int r : ranks) {
    inside.inputs.push_back(c.inputBlock(r));
    inside.outputs.push_back(c.outputBlock(r));
  }
  hosts.all.prepare(hosts.all.size);
  Task far = c.kind == CollectiveKind::AllToAllV ? allToAllVFar(hosts.all, c, &hosts.map)
                                                 : allToAllFar(hosts.all, c, &hosts.map);
  Task near = hosts.local(inside);
  co_await Task::Overlapping{near, far};
  co_await far;
}

double allToAllGroupMicros(const AlgorithmQuery& q) {
  const GroupCost cost(q);
  return cost.inside(CollectiveKind::AllToAll, cost.bytes / cost.hosts) +
         cost.straight(q.kind, cost.bytes * cost.away() / cost.all(), static_cast<int>(cost.ranks));
}

}  // namespace

namespace algorithms {

Algorithm allToAllHostsGroup() {
  return {.name = kGroup,
          .kinds = {CollectiveKind::AllToAll, CollectiveKind::AllToAllV},
          .run = allToAllGroup,
          .micros = allToAllGroupMicros};
}

}  // namespace algorithms

}  // namespace ctran
