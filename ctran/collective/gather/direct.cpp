#include "ctran/collective/tcp_algorithms.h"

namespace ctran {

/// One step: everybody sends its block to the root, which receives into place.
Task gatherDirect(TcpContext& tcp, const Collective& c) {
  if (tcp.rank != c.root) {
    Dispatch dispatch = tcp.send(c.root, 0, c.input, c.blockBytes());
    co_await dispatch;
    co_return;
  }
  copyBlock(c.outputBlock(tcp.rank).data, c.input, c.blockBytes());
  std::vector<Arrival> arrivals;
  for (int step = 1; step < tcp.size; ++step) {
    const int peer = tcp.after(step);
    arrivals.push_back(tcp.receive(peer, 0, c.outputBlock(peer).data, c.blockBytes()));
  }
  for (Arrival& arrival : arrivals) co_await arrival;
}

}  // namespace ctran
