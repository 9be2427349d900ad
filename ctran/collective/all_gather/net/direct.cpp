#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// For all_gather and all_gather_v. One step: every rank sends its block to every other rank,
/// nearest first, so that no rank is sent to by all at once; received into place. Every rank sends
/// and receives size - 1 blocks, which is the least.
Task allGatherDirect(NetContext& net, const Collective& c) {
  const size_t element = sizeOf(c.type);
  copyBlock(c.outputBlock(net.rank).data, c.input, c.blockBytes());
  std::vector<Arrival> arrivals;
  std::vector<Dispatch> dispatches;
  for (int step = 1; step < net.size; ++step) {
    const int peer = net.before(step);
    const Block block = c.outputBlock(peer);
    arrivals.push_back(net.receive(peer, 0, block.data, block.count * element));
  }
  for (int step = 1; step < net.size; ++step) {
    dispatches.push_back(net.send(net.after(step), 0, c.input, c.blockBytes()));
  }
  for (Arrival& arrival : arrivals) co_await arrival;
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

}  // namespace

namespace algorithms {

Algorithm allGatherNetDirect() {
  return {.name = "direct",
          .kinds = {CollectiveKind::AllGather, CollectiveKind::AllGatherV},
          .run = allGatherDirect,
          .micros = straightMicros};
}

}  // namespace algorithms

}  // namespace ctran
