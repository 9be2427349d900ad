#include "ctran/collective/algorithm.h"
#include "ctran/collective/hosts_context.h"
#include "ctran/collective/hosts_cost.h"
#include "ctran/collective/preference.h"

namespace ctran {
namespace {

/// For reduce_scatter and reduce_scatter_v, where all hosts have as many ranks. For each host, a
/// reduce-scatter inside of the blocks of its ranks: each rank then has this host's contribution to
/// the blocks of those of its place, and reduces with them. Of the data a host sends (hosts - 1) /
/// hosts, as if it had one rank. Partial sums pass two hops.
Task reduceScatterGroup(HostsContext& hosts, const Collective& c) {
  const HostMap& map = hosts.map;
  const size_t element = sizeOf(c.type);
  std::vector<Block> partial(map.hosts());
  size_t bytes = 0;
  for (int h = 0; h < map.hosts(); ++h) {
    partial[h].count = c.inputBlock(map.ranks(h)[map.index()]).count;
    bytes += (partial[h].count * element + 63) / 64 * 64;
  }
  std::byte* at = hosts.scratch(bytes);
  Collective step = partialOf(c);
  step.kind = CollectiveKind::ReduceScatterV;
  step.inputs.resize(map.local().size());
  for (int h = 0; h < map.hosts(); ++h) {
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      step.inputs[i] = c.inputBlock(map.ranks(h)[i]);
    }
    partial[h].data = step.output = at;
    step.count = partial[h].count;
    at += (step.count * element + 63) / 64 * 64;
    Task task = hosts.local(step);
    co_await task;
  }
  step.op = c.op;
  step.inputs = partial;
  step.output = c.output;
  step.count = c.count;
  Task task = hosts.between(hosts.rail(), step);
  co_await task;
}

double reduceScatterGroupMicros(const AlgorithmQuery& q) {
  const GroupCost cost(q);
  return cost.hosts * cost.inside(q.kind, cost.bytes / cost.hosts) +
         cost.between(q.kind, cost.bytes / cost.ranks, cost.ranks);
}

std::string whyNotReduceScatterGroup(const AlgorithmQuery& q) {
  return q.map->isEven() ? "" : "the hosts have different numbers of ranks";
}

}  // namespace

namespace algorithms {

Algorithm reduceScatterHostsGroup() {
  return {.name = kGroup,
          .kinds = {CollectiveKind::ReduceScatter, CollectiveKind::ReduceScatterV},
          .run = reduceScatterGroup,
          .micros = reduceScatterGroupMicros,
          .whyNot = whyNotReduceScatterGroup,
          .sumsPartially = true};
}

}  // namespace algorithms

}  // namespace ctran
