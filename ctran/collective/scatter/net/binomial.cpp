#include "ctran/collective/binomial.h"
#include "ctran/collective/algorithm.h"
#include "ctran/collective/block_run.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// Every rank gets the blocks of its subtree of a binomial tree from its parent, and passes on
/// those of its children's: log2(n) steps, rounded up. The root sends each block once, over log2(n)
/// connections; blocks travel log2(n) hops at most.
Task scatterBinomial(NetContext& net, const Collective& c) {
  const Binomial tree(net.rank, c.root, net.size);
  const size_t bytes = c.blockBytes();
  std::vector<BlockRun> runs;
  std::vector<Dispatch> dispatches;
  std::byte* const blocks = tree.isRoot() ? nullptr : net.scratch(bytes * tree.below(0));
  if (!tree.isRoot()) {
    Arrival arrival = net.receive(tree.parent(), 0, blocks, bytes * tree.below(0));
    co_await arrival;
  }
  int child = 1;
  while (2 * child < tree.end() && tree.hasChild(2 * child)) child *= 2;
  for (; child > 0; child /= 2) {  // the largest subtree first
    if (child >= tree.end() || !tree.hasChild(child)) continue;
    std::vector<Block> below;
    for (int i = 0; i < tree.below(child); ++i) {
      below.push_back(tree.isRoot() ? c.inputBlock(tree.rankOf(child + i))
                                    : Block{blocks + (child + i) * bytes, c.count});
    }
    runs.emplace_back(std::move(below), sizeOf(c.type));
    dispatches.push_back(
        net.send(tree.rankOf(child), 0, runs.back().packed(), runs.back().bytes()));
  }
  copyBlock(c.output, tree.isRoot() ? c.inputBlock(net.rank).data : blocks, bytes);
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

}  // namespace

namespace algorithms {

Algorithm scatterNetBinomial() {
  return {.name = "binomial",
          .kinds = {CollectiveKind::Scatter},
          .run = scatterBinomial,
          .micros = treeOfBlocksMicros};
}

}  // namespace algorithms

}  // namespace ctran
