#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// For all_gather and all_gather_v. size - 1 steps: every rank passes on to the next the block that
/// it got in the step before. As many bytes as direct, over two connections per rank.
Task allGatherRing(NetContext& net, const Collective& c) {
  const size_t element = sizeOf(c.type);
  copyBlock(c.outputBlock(net.rank).data, c.input, c.blockBytes());
  const int self = net.place(), next = net.at(self + 1), previous = net.at(self - 1);
  /// Returns the block of the rank `step` places before this one.
  const auto blockOf = [&net, &c, self](int step) { return c.outputBlock(net.at(self - step)); };
  std::vector<Arrival> arrivals;
  std::vector<Dispatch> dispatches;
  for (int step = 1; step < net.size; ++step) {
    const Block block = blockOf(step);
    arrivals.push_back(
        net.receive(previous, static_cast<uint32_t>(step), block.data, block.count * element));
  }
  for (int step = 1; step < net.size; ++step) {
    const Block block = blockOf(step - 1);
    dispatches.push_back(
        net.send(next, static_cast<uint32_t>(step), block.data, block.count * element));
    co_await arrivals[step - 1];
  }
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

}  // namespace

namespace algorithms {

Algorithm allGatherNetRing() {
  return {.name = "ring",
          .kinds = {CollectiveKind::AllGather, CollectiveKind::AllGatherV},
          .run = allGatherRing,
          .micros = oneByOneMicros};
}

}  // namespace algorithms

}  // namespace ctran
