#include "ctran/collective/all_reduce/two_phase.h"
#include "ctran/collective/tcp_algorithms.h"

namespace ctran {

Task allReduceDirect(TcpContext& tcp, const Collective& c) { return reduceInOnePhase(tcp, c, -1); }

/// One step: everybody sends its whole input to everybody who gets the result, and these reduce all
/// inputs in rank order. size - 1 times the data per rank, for the latency of one message.
Task reduceInOnePhase(TcpContext& tcp, const Collective& c, int root) {
  const size_t bytes = c.blockBytes();
  std::vector<Arrival> arrivals;
  std::vector<Dispatch> dispatches;
  const bool collects = root < 0 || root == tcp.rank;
  std::byte* const scratch = collects ? tcp.scratch(bytes * tcp.size) : nullptr;
  for (int step = 1; collects && step < tcp.size; ++step) {
    const int peer = tcp.before(step);
    arrivals.push_back(tcp.receive(peer, 0, scratch + peer * bytes, bytes));
  }
  for (int step = 1; step < tcp.size; ++step) {
    const int peer = tcp.after(step);
    if (root < 0 || root == peer) dispatches.push_back(tcp.send(peer, 0, c.input, bytes));
  }
  for (Arrival& arrival : arrivals) co_await arrival;
  for (Dispatch& dispatch : dispatches) co_await dispatch;  // in place, the result goes there
  if (!collects || c.count == 0) co_return;
  std::vector<const std::byte*> sources(tcp.size);
  for (int r = 0; r < tcp.size; ++r) sources[r] = scratch + r * bytes;
  sources[tcp.rank] = c.input;
  reduceFn(c.op.kind, c.type)(c.output, sources.data(), tcp.size, c.count, tcp.contributions());
}

}  // namespace ctran
