#include "ctran/collective/algorithm.h"
#include "ctran/collective/hosts_context.h"
#include "ctran/collective/hosts_cost.h"
#include "ctran/collective/preference.h"

namespace ctran {
namespace {

/// Reduce inside each host, to the root or the rank of its place there; reduce among these. Every
/// byte leaves a host once, or twice less a part where the ranks share the arithmetic.
Task reduceGroup(HostsContext& hosts, const Collective& c) {
  const int self = hosts.call.board.rank();
  const int delegate = hosts.delegate(hosts.map.host(), c.root);
  Collective step = partialOf(c);
  step.root = hosts.map.indexOf(delegate);
  if (self != c.root) step.output = self == delegate ? hosts.scratch(c.blockBytes()) : nullptr;
  {
    Task task = hosts.local(step);
    co_await task;
  }
  if (self != delegate) co_return;
  step.op = c.op;
  step.input = step.output;
  step.root = hosts.map.hostOf(c.root);
  Task task = hosts.between(hosts.around(c.root), step);
  co_await task;
}

double reduceGroupMicros(const AlgorithmQuery& q) {
  const GroupCost cost(q);
  return cost.inside(q.kind, cost.bytes) + cost.between(q.kind, cost.bytes, 1);
}

}  // namespace

namespace algorithms {

Algorithm reduceHostsGroup() {
  return {.name = kGroup,
          .kinds = {CollectiveKind::Reduce},
          .run = reduceGroup,
          .micros = reduceGroupMicros,
          .sumsPartially = true};
}

}  // namespace algorithms

}  // namespace ctran
