#include "ctran/collective/binomial.h"
#include "ctran/collective/algorithm.h"
#include "ctran/collective/block_run.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// Every rank collects the blocks of its subtree of a binomial tree and sends them to its parent:
/// log2(n) steps, rounded up. The root receives each block once, over log2(n) connections; blocks
/// travel log2(n) hops at most.
Task gatherBinomial(NetContext& net, const Collective& c) {
  const Binomial tree(net.rank, c.root, net.size);
  const size_t bytes = c.blockBytes();
  if (tree.isRoot()) {
    copyBlock(c.outputBlock(net.rank).data, c.input, bytes);
    std::vector<BlockRun> runs;
    std::vector<Arrival> arrivals;
    for (int child = 1; child < tree.end() && tree.hasChild(child); child *= 2) {
      std::vector<Block> blocks;
      for (int i = 0; i < tree.below(child); ++i) {
        blocks.push_back(c.outputBlock(tree.rankOf(child + i)));
      }
      runs.emplace_back(std::move(blocks), sizeOf(c.type));
      arrivals.push_back(
          net.receive(tree.rankOf(child), 0, runs.back().landing(), runs.back().bytes()));
    }
    for (size_t i = 0; i < runs.size(); ++i) {
      co_await arrivals[i];
      runs[i].unpack();
    }
    co_return;
  }
  std::byte* const blocks = net.scratch(bytes * tree.below(0));
  copyBlock(blocks, c.input, bytes);
  std::vector<Arrival> arrivals;
  for (int child = 1; child < tree.end() && tree.hasChild(child); child *= 2) {
    arrivals.push_back(
        net.receive(tree.rankOf(child), 0, blocks + child * bytes, tree.below(child) * bytes));
  }
  for (Arrival& arrival : arrivals) co_await arrival;
  Dispatch dispatch = net.send(tree.parent(), 0, blocks, tree.below(0) * bytes);
  co_await dispatch;
}

}  // namespace

namespace algorithms {

Algorithm gatherNetBinomial() {
  return {.name = "binomial",
          .kinds = {CollectiveKind::Gather},
          .run = gatherBinomial,
          .micros = treeOfBlocksMicros};
}

}  // namespace algorithms

}  // namespace ctran
