#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// One step: the root sends every rank its block.
Task scatterDirect(NetContext& net, const Collective& c) {
  if (net.rank != c.root) {
    Arrival arrival = net.receive(c.root, 0, c.output, c.blockBytes());
    co_await arrival;
    co_return;
  }
  std::vector<Dispatch> dispatches;
  for (int step = 1; step < net.size; ++step) {
    const int peer = net.after(step);
    dispatches.push_back(net.send(peer, 0, c.inputBlock(peer).data, c.blockBytes()));
  }
  copyBlock(c.output, c.inputBlock(net.rank).data, c.blockBytes());
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

}  // namespace

namespace algorithms {

Algorithm scatterNetDirect() {
  return {.name = "direct",
          .kinds = {CollectiveKind::Scatter},
          .run = scatterDirect,
          .micros = straightMicros};
}

}  // namespace algorithms

}  // namespace ctran
