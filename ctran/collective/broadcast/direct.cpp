#include "ctran/collective/tcp_algorithms.h"

namespace ctran {

/// One step: the root sends everything to everybody.
Task broadcastDirect(TcpContext& tcp, const Collective& c) {
  if (tcp.rank != c.root) {
    Arrival arrival = tcp.receive(c.root, 0, c.output, c.blockBytes());
    co_await arrival;
    co_return;
  }
  std::vector<Dispatch> dispatches;
  for (int step = 1; step < tcp.size; ++step) {
    dispatches.push_back(tcp.send(tcp.after(step), 0, c.output, c.blockBytes()));
  }
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

}  // namespace ctran
