#include "ctran/collective/algorithm.h"
#include "ctran/collective/block_run.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"
#include "ctran/collective/partial.h"

namespace ctran {
namespace {

/// For all_gather and all_gather_v. In each step a rank exchanges all blocks that it has with a
/// partner: log2(n) steps, n - 1 blocks sent by each rank. Where n is no power of two, two steps
/// more, and the ranks that take part for others send the result once more.
Task allGatherRecursiveDoubling(NetContext& net, const Collective& c) {
  constexpr uint32_t kFold = 0, kDoubling = 1, kUnfold = 64;
  const size_t element = sizeOf(c.type);
  const int core = coreOf(net.size), rank = net.rank;
  // The blocks of the ranks [begin, end) of the core, and of those that these stand for.
  const auto run = [&](int begin, int end) {
    std::vector<Block> blocks;
    for (int r = begin; r < end; ++r) blocks.push_back(c.outputBlock(r));
    for (int r = begin + core; r < std::min(end + core, net.size); ++r) {
      blocks.push_back(c.outputBlock(r));
    }
    return BlockRun(std::move(blocks), element);
  };
  copyBlock(c.outputBlock(rank).data, c.input, c.blockBytes());
  if (rank >= core) {
    Dispatch dispatch = net.send(rank - core, kFold, c.input, c.blockBytes());
    co_await dispatch;
    BlockRun all = run(0, core);
    Arrival arrival = net.receive(rank - core, kUnfold, all.landing(), all.bytes());
    co_await arrival;
    all.unpack();
    co_return;
  }
  const int extra = rank + core;
  if (extra < net.size) {
    const Block block = c.outputBlock(extra);
    Arrival arrival = net.receive(extra, kFold, block.data, block.count * element);
    co_await arrival;
  }
  uint32_t step = kDoubling;
  for (int distance = 1; distance < core; distance *= 2, ++step) {
    const int begin = rank / distance * distance, other = begin ^ distance;
    BlockRun own = run(begin, begin + distance), got = run(other, other + distance);
    Arrival arrival = net.receive(rank ^ distance, step, got.landing(), got.bytes());
    Dispatch dispatch = net.send(rank ^ distance, step, own.packed(), own.bytes());
    co_await arrival;
    co_await dispatch;
    got.unpack();
  }
  if (extra >= net.size) co_return;
  BlockRun all = run(0, core);
  Dispatch dispatch = net.send(extra, kUnfold, all.packed(), all.bytes());
  co_await dispatch;
}

}  // namespace

namespace algorithms {

Algorithm allGatherNetRecursiveDoubling() {
  return {.name = "recursive_doubling",
          .kinds = {CollectiveKind::AllGather, CollectiveKind::AllGatherV},
          .run = allGatherRecursiveDoubling,
          .micros = byHalvesMicros};
}

}  // namespace algorithms

}  // namespace ctran
