#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// One step: the root sends everything to every rank.
Task broadcastDirect(NetContext& net, const Collective& c) {
  if (net.rank != c.root) {
    Arrival arrival = net.receive(c.root, 0, c.output, c.blockBytes());
    co_await arrival;
    co_return;
  }
  std::vector<Dispatch> dispatches;
  for (int step = 1; step < net.size; ++step) {
    dispatches.push_back(net.send(net.after(step), 0, c.output, c.blockBytes()));
  }
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

double broadcastDirectMicros(const AlgorithmQuery& q) {
  const double peers = q.size - 1;
  return netMicros(q, {1, peers, peers * static_cast<double>(q.bytes), 0, crowdOf(q.size, false)});
}

}  // namespace

namespace algorithms {

Algorithm broadcastNetDirect() {
  return {.name = "direct",
          .kinds = {CollectiveKind::Broadcast},
          .run = broadcastDirect,
          .micros = broadcastDirectMicros};
}

}  // namespace algorithms

}  // namespace ctran
