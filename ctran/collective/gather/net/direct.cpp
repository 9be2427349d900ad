#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// One step: every rank sends its block to the root, which receives into place.
Task gatherDirect(NetContext& net, const Collective& c) {
  if (net.rank != c.root) {
    Dispatch dispatch = net.send(c.root, 0, c.input, c.blockBytes());
    co_await dispatch;
    co_return;
  }
  copyBlock(c.outputBlock(net.rank).data, c.input, c.blockBytes());
  std::vector<Arrival> arrivals;
  for (int step = 1; step < net.size; ++step) {
    const int peer = net.after(step);
    arrivals.push_back(net.receive(peer, 0, c.outputBlock(peer).data, c.blockBytes()));
  }
  for (Arrival& arrival : arrivals) co_await arrival;
}

}  // namespace

namespace algorithms {

Algorithm gatherNetDirect() {
  return {.name = "direct",
          .kinds = {CollectiveKind::Gather},
          .run = gatherDirect,
          .micros = straightMicros};
}

}  // namespace algorithms

}  // namespace ctran
