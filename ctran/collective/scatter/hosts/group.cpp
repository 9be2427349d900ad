#include "ctran/collective/algorithm.h"
#include "ctran/collective/hosts_context.h"
#include "ctran/collective/hosts_cost.h"
#include "ctran/collective/preference.h"

namespace ctran {
namespace {

/// Inside the root's host through shared memory; to the others the root sends their blocks.
Task scatterGroup(HostsContext& hosts, const Collective& c) {
  const HostMap& map = hosts.map;
  const int home = map.hostOf(c.root);
  const bool isRoot = hosts.all.rank == c.root;
  hosts.all.prepare(hosts.all.size);
  if (map.host() != home) {
    Arrival arrival = hosts.all.receive(c.root, 0, c.output, c.blockBytes());
    co_await arrival;
    co_return;
  }
  std::vector<Dispatch> dispatches;
  for (int step = 1; isRoot && step < hosts.all.size; ++step) {
    const int peer = hosts.all.after(step);
    if (map.hostOf(peer) == home) continue;
    dispatches.push_back(hosts.all.send(peer, 0, c.inputBlock(peer).data, c.blockBytes()));
  }
  Collective inside = c;
  inside.root = map.indexOf(c.root);
  inside.inputs.clear();
  for (const int r : map.local()) {
    if (isRoot) inside.inputs.push_back(c.inputBlock(r));
  }
  Task task = hosts.local(inside);
  co_await task;
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

double scatterGroupMicros(const AlgorithmQuery& q) {
  const GroupCost cost(q);
  return cost.inside(q.kind, cost.bytes / cost.hosts) +
         cost.straight(q.kind, cost.bytes * cost.away() / cost.all(), 1);
}

}  // namespace

namespace algorithms {

Algorithm scatterHostsGroup() {
  return {.name = kGroup,
          .kinds = {CollectiveKind::Scatter},
          .run = scatterGroup,
          .micros = scatterGroupMicros};
}

}  // namespace algorithms

}  // namespace ctran
