#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// Two steps: the root sends each rank its part, and every rank sends its part to all others but
/// the root. Every rank sends the data about once, whatever their number.
Task broadcastScatterAllGather(NetContext& net, const Collective& c) {
  constexpr uint32_t kScatter = 0, kGather = 1;
  const size_t element = sizeOf(c.type);
  const Partition parts(c.count, net.size, element);
  const auto at = [&](int rank) { return c.output + parts.begin(rank) * element; };
  const auto bytes = [&](int rank) { return parts.size(rank) * element; };
  const bool isRoot = net.rank == c.root;
  std::vector<Arrival> arrivals;
  std::vector<Dispatch> dispatches;
  Arrival own;
  if (!isRoot) own = net.receive(c.root, kScatter, at(net.rank), bytes(net.rank));
  for (int step = 1; step < net.size; ++step) {
    const int peer = net.before(step);
    if (isRoot) break;
    arrivals.push_back(net.receive(peer, kGather, at(peer), bytes(peer)));
  }
  for (int step = 1; isRoot && step < net.size; ++step) {
    const int peer = net.after(step);
    dispatches.push_back(net.send(peer, kScatter, at(peer), bytes(peer)));
  }
  if (!isRoot) co_await own;
  for (int step = 1; step < net.size; ++step) {
    const int peer = net.after(step);
    if (peer == c.root) continue;
    dispatches.push_back(net.send(peer, kGather, at(net.rank), bytes(net.rank)));
  }
  for (Arrival& arrival : arrivals) co_await arrival;
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

}  // namespace

namespace algorithms {

Algorithm broadcastNetScatterAllGather() {
  return {.name = "scatter_all_gather",
          .kinds = {CollectiveKind::Broadcast},
          .run = broadcastScatterAllGather,
          .micros = twoStepsMicros};
}

}  // namespace algorithms

}  // namespace ctran
