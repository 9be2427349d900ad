#include "ctran/collective/algorithm.h"
#include "ctran/collective/all_reduce/net/two_phase.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {

/// One step: every rank sends its whole input to every rank that gets the result, and these reduce
/// all inputs in rank order. size - 1 times the data per rank, for the latency of one message.
Task reduceInOnePhase(NetContext& net, const Collective& c, int root) {
  const size_t bytes = c.blockBytes();
  std::vector<Arrival> arrivals;
  std::vector<Dispatch> dispatches;
  const bool collects = root < 0 || root == net.rank;
  std::byte* const scratch = collects ? net.scratch(bytes * net.size) : nullptr;
  for (int step = 1; collects && step < net.size; ++step) {
    const int peer = net.before(step);
    arrivals.push_back(net.receive(peer, 0, scratch + peer * bytes, bytes));
  }
  for (int step = 1; step < net.size; ++step) {
    const int peer = net.after(step);
    if (root < 0 || root == peer) dispatches.push_back(net.send(peer, 0, c.input, bytes));
  }
  for (Arrival& arrival : arrivals) co_await arrival;
  for (Dispatch& dispatch : dispatches) co_await dispatch;  // in place, the result goes there
  if (!collects || c.count == 0) co_return;
  std::vector<const std::byte*> sources(net.size);
  for (int r = 0; r < net.size; ++r) sources[r] = scratch + r * bytes;
  sources[net.rank] = c.input;
  reduceFn(c.op.kind, c.type)(c.output, sources.data(), net.size, c.count, net.contributions());
}

namespace {

Task allReduceDirectOverNet(NetContext& net, const Collective& c) {
  return reduceInOnePhase(net, c, -1);
}

double allReduceDirectOverNetMicros(const AlgorithmQuery& q) {
  const double peers = q.size - 1, bytes = static_cast<double>(q.bytes);
  const double moved = peers * bytes * crowding(q.size);
  return netMicros(q, {1, peers, moved, peers * bytes, crowdOf(q.size, true)});
}

}  // namespace

namespace algorithms {

Algorithm allReduceNetDirect() {
  return {.name = "direct",
          .kinds = {CollectiveKind::AllReduce},
          .run = allReduceDirectOverNet,
          .micros = allReduceDirectOverNetMicros};
}

}  // namespace algorithms

}  // namespace ctran
