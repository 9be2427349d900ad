#include "ctran/collective/algorithm.h"
#include "ctran/collective/hosts_context.h"
#include "ctran/collective/hosts_cost.h"
#include "ctran/collective/preference.h"

namespace ctran {
namespace {

/// Inside the root's host through shared memory; the others send the root their blocks, which it
/// receives into place.
Task gatherGroup(HostsContext& hosts, const Collective& c) {
  const HostMap& map = hosts.map;
  const int home = map.hostOf(c.root);
  const bool isRoot = hosts.all.rank == c.root;
  hosts.all.prepare(hosts.all.size);
  if (map.host() != home) {
    Dispatch dispatch = hosts.all.send(c.root, 0, c.input, c.blockBytes());
    co_await dispatch;
    co_return;
  }
  std::vector<Arrival> arrivals;
  for (int step = 1; isRoot && step < hosts.all.size; ++step) {
    const int peer = hosts.all.after(step);
    if (map.hostOf(peer) == home) continue;
    arrivals.push_back(hosts.all.receive(peer, 0, c.outputBlock(peer).data, c.blockBytes()));
  }
  Collective inside = c;
  inside.root = map.indexOf(c.root);
  inside.outputs.clear();
  for (const int r : map.local()) {
    if (isRoot) inside.outputs.push_back(c.outputBlock(r));
  }
  Task task = hosts.local(inside);
  co_await task;
  for (Arrival& arrival : arrivals) co_await arrival;
}

double gatherGroupMicros(const AlgorithmQuery& q) {
  const GroupCost cost(q);
  return cost.inside(q.kind, cost.bytes) + cost.straight(q.kind, cost.bytes * cost.away(), 1);
}

}  // namespace

namespace algorithms {

Algorithm gatherHostsGroup() {
  return {.name = kGroup,
          .kinds = {CollectiveKind::Gather},
          .run = gatherGroup,
          .micros = gatherGroupMicros};
}

}  // namespace algorithms

}  // namespace ctran
