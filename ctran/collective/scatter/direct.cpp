#include "ctran/collective/tcp_algorithms.h"

namespace ctran {

/// One step: the root sends every rank its block.
Task scatterDirect(TcpContext& tcp, const Collective& c) {
  if (tcp.rank != c.root) {
    Arrival arrival = tcp.receive(c.root, 0, c.output, c.blockBytes());
    co_await arrival;
    co_return;
  }
  std::vector<Dispatch> dispatches;
  for (int step = 1; step < tcp.size; ++step) {
    const int peer = tcp.after(step);
    dispatches.push_back(tcp.send(peer, 0, c.inputBlock(peer).data, c.blockBytes()));
  }
  copyBlock(c.output, c.inputBlock(tcp.rank).data, c.blockBytes());
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

}  // namespace ctran
