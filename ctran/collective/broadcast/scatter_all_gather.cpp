#include "ctran/collective/tcp_algorithms.h"

namespace ctran {

/// Two steps: the root sends each rank its part, and every rank sends its part to all others but
/// the root. Every rank sends the data about once, whatever their number.
Task broadcastScatterAllGather(TcpContext& tcp, const Collective& c) {
  constexpr uint32_t kScatter = 0, kGather = 1;
  const size_t element = sizeOf(c.type);
  const Partition parts(c.count, tcp.size, element);
  const auto at = [&](int rank) { return c.output + parts.begin(rank) * element; };
  const auto bytes = [&](int rank) { return parts.size(rank) * element; };
  const bool isRoot = tcp.rank == c.root;
  std::vector<Arrival> arrivals;
  std::vector<Dispatch> dispatches;
  Arrival own;
  if (!isRoot) own = tcp.receive(c.root, kScatter, at(tcp.rank), bytes(tcp.rank));
  for (int step = 1; step < tcp.size; ++step) {
    const int peer = tcp.before(step);
    if (isRoot) break;
    arrivals.push_back(tcp.receive(peer, kGather, at(peer), bytes(peer)));
  }
  for (int step = 1; isRoot && step < tcp.size; ++step) {
    const int peer = tcp.after(step);
    dispatches.push_back(tcp.send(peer, kScatter, at(peer), bytes(peer)));
  }
  if (!isRoot) co_await own;
  for (int step = 1; step < tcp.size; ++step) {
    const int peer = tcp.after(step);
    if (peer == c.root) continue;
    dispatches.push_back(tcp.send(peer, kGather, at(tcp.rank), bytes(tcp.rank)));
  }
  for (Arrival& arrival : arrivals) co_await arrival;
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

}  // namespace ctran
