#include "ctran/collective/algorithm.h"
#include "ctran/collective/hosts_context.h"
#include "ctran/collective/hosts_cost.h"
#include "ctran/collective/preference.h"

namespace ctran {
namespace {

/// A barrier inside each host, one among the first ranks of all hosts, one inside again.
Task barrierGroup(HostsContext& hosts, const Collective& c) {
  {
    Task task = hosts.local(c);
    co_await task;
  }
  if (hosts.map.index() == 0) {
    Task task = hosts.between(hosts.rail(), c);
    co_await task;
  }
  Task task = hosts.local(c);
  co_await task;
}

double barrierGroupMicros(const AlgorithmQuery& q) {
  const GroupCost cost(q);
  return 2 * cost.inside(q.kind, 0) + cost.between(q.kind, 0, 1);
}

}  // namespace

namespace algorithms {

Algorithm barrierHostsGroup() {
  return {.name = kGroup,
          .kinds = {CollectiveKind::Barrier},
          .run = barrierGroup,
          .micros = barrierGroupMicros};
}

}  // namespace algorithms

}  // namespace ctran
