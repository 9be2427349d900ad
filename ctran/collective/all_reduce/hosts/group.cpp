#include "ctran/collective/algorithm.h"
#include "ctran/collective/hosts_context.h"
#include "ctran/collective/hosts_cost.h"
#include "ctran/collective/preference.h"

namespace ctran {
namespace {

/// Pieces of some megabytes for each rail, but not more than a few hundred.
size_t groupPieceBytes(size_t bytes, int rails, size_t element) {
  const size_t piece = std::max<size_t>(rails * size_t{2 << 20}, bytes / 256);
  return piece / element * element;
}

/// Reduce-scatter inside each host, all-reduce of each part among the ranks that have it, one of
/// each host, all-gather inside: every byte leaves a host as often as if it had one rank, and every
/// local rank drives its own connections. With fewer ranks on one host than on another, so many
/// parts. While a piece is between the hosts, the one before is gathered inside, and the next one
/// reduced. Partial sums pass two hops.
Task allReduceGroup(HostsContext& hosts, const Collective& c) {
  const size_t element = sizeOf(c.type);
  const int rails = hosts.map.rails();
  const auto ranks = static_cast<int>(hosts.map.local().size());
  const size_t piece = groupPieceBytes(c.blockBytes(), rails, element);
  const auto pieces = static_cast<uint32_t>((c.blockBytes() + piece - 1) / piece);
  const auto parts = [&](uint32_t k) {
    return Partition(std::min(piece, c.blockBytes() - k * piece) / element, rails, element);
  };
  // The parts of a piece, one per local rank; empty for those that have no rail.
  const auto blocks = [&](uint32_t k, const std::byte* data) {
    std::vector<Block> blocks(ranks);
    for (int r = 0; r < rails; ++r) {
      blocks[r] = {const_cast<std::byte*>(data) + k * piece + parts(k).begin(r) * element,
                   parts(k).size(r)};
    }
    return blocks;
  };
  const auto own = [&](uint32_t k) { return blocks(k, c.output)[hosts.map.index()]; };

  const auto scatterOf = [&](uint32_t k) {
    Collective step = partialOf(c);
    step.kind = CollectiveKind::ReduceScatterV;
    step.inputs = blocks(k, c.input);
    step.output = own(k).data;
    step.count = own(k).count;
    return step;
  };
  const auto gatherOf = [&](uint32_t k) {
    Collective step = c;
    step.kind = CollectiveKind::AllGatherV;
    step.input = own(k).data;
    step.count = own(k).count;
    step.outputs = blocks(k, c.output);
    return step;
  };

  if (pieces > 0) {
    const Collective step = scatterOf(0);
    Task task = hosts.local(step);
    co_await task;
  }
  for (uint32_t k = 0; k < pieces; ++k) {
    Collective between = c;
    between.output = own(k).data;
    between.input = between.output;
    between.count = own(k).count;
    Task rail = hosts.onRail() ? hosts.between(hosts.rail(), between, k) : doNothing(hosts.all);
    if (k > 0) {
      const Collective step = gatherOf(k - 1);
      Task task = hosts.local(step);
      co_await Task::Overlapping{task, rail};
    }
    if (k + 1 < pieces) {
      const Collective step = scatterOf(k + 1);
      Task task = hosts.local(step);
      co_await Task::Overlapping{task, rail};
    }
    co_await rail;
  }
  if (pieces > 0) {
    const Collective step = gatherOf(pieces - 1);
    Task task = hosts.local(step);
    co_await task;
  }
}

double allReduceGroupMicros(const AlgorithmQuery& q) {
  const GroupCost cost(q);
  return cost.inside(CollectiveKind::ReduceScatter, cost.bytes) +
         cost.between(q.kind, cost.bytes / cost.rails, cost.rails) +
         cost.inside(CollectiveKind::AllGather, cost.bytes / cost.rails);
}

}  // namespace

namespace algorithms {

Algorithm allReduceHostsGroup() {
  return {.name = kGroup,
          .kinds = {CollectiveKind::AllReduce},
          .run = allReduceGroup,
          .micros = allReduceGroupMicros,
          .sumsPartially = true};
}

}  // namespace algorithms

}  // namespace ctran
