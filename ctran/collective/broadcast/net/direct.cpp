#include "ctran/collective/net_algorithms.h"

namespace ctran {

/// One step: the root sends everything to everybody.
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

}  // namespace ctran
