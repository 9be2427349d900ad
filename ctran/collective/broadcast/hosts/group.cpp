#include "ctran/collective/algorithm.h"
#include "ctran/collective/hosts_context.h"
#include "ctran/collective/hosts_cost.h"
#include "ctran/collective/preference.h"

namespace ctran {
namespace {

/// So much is worth to be cut into parts.
constexpr size_t kWhole = 64 << 10;

/// Inside the root's host everything to everybody; then each of them sends one part to the ranks of
/// its place in the other hosts, where the parts are gathered. Every byte enters a host once. What
/// is small is one part.
Task broadcastGroup(HostsContext& hosts, const Collective& c) {
  const HostMap& map = hosts.map;
  const size_t element = sizeOf(c.type);
  const bool atRoot = map.host() == map.hostOf(c.root);
  const int rails = c.blockBytes() <= kWhole ? 1 : map.rails();
  const Partition parts(c.count, rails, element);
  if (atRoot) {
    Collective step = c;
    step.root = map.indexOf(c.root);
    Task task = hosts.local(step);
    co_await task;
  }
  if (map.index() < rails) {
    Collective step = c;
    step.output = c.output + parts.begin(map.index()) * element;
    step.count = parts.size(map.index());
    step.root = map.hostOf(c.root);
    Task task = hosts.between(hosts.rail(), step);
    co_await task;
  }
  if (atRoot) co_return;
  Collective step = c;
  step.root = 0;
  if (rails > 1) {
    step.kind = CollectiveKind::AllGatherV;
    step.outputs.resize(map.local().size());
    for (int r = 0; r < rails; ++r) {
      step.outputs[r] = {c.output + parts.begin(r) * element, parts.size(r)};
    }
    step.input = step.outputs[map.index()].data;
    step.count = step.outputs[map.index()].count;
  }
  Task task = hosts.local(step);
  co_await task;
}

double broadcastGroupMicros(const AlgorithmQuery& q) {
  const GroupCost cost(q);
  return cost.inside(q.kind, cost.bytes) +
         cost.between(q.kind, cost.bytes / cost.rails, cost.rails) +
         cost.inside(CollectiveKind::AllGather, cost.bytes / cost.rails);
}

}  // namespace

namespace algorithms {

Algorithm broadcastHostsGroup() {
  return {.name = kGroup,
          .kinds = {CollectiveKind::Broadcast},
          .run = broadcastGroup,
          .micros = broadcastGroupMicros};
}

}  // namespace algorithms

}  // namespace ctran
