#include "ctran/collective/all_to_all/net/direct.h"
#include "ctran/collective/algorithm.h"
#include "ctran/collective/all_to_all/sources.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// Returns whether blocks go to a rank, and come from it, over the network.
bool isFar(const NetContext& net, const HostMap* near, int peer) {
  return near == nullptr || near->hostOf(peer) != near->hostOf(net.rank);
}

Task allToAllDirect(NetContext& net, const Collective& c) {
  return c.kind == CollectiveKind::AllToAllV ? allToAllVFar(net, c, nullptr)
                                             : allToAllFar(net, c, nullptr);
}

}  // namespace

/// One step: every block goes straight to its rank, nearest first. Every byte travels once.
Task allToAllFar(NetContext& net, const Collective& c, const HostMap* near) {
  const size_t bytes = c.blockBytes();
  const Sources sources(c, net.rank, net.size);
  std::vector<Arrival> arrivals;
  std::vector<Dispatch> dispatches;
  for (int step = 1; step < net.size; ++step) {
    const int peer = net.before(step);
    if (!isFar(net, near, peer)) continue;
    arrivals.push_back(net.receive(peer, 0, c.outputBlock(peer).data, bytes));
  }
  for (int step = 1; step < net.size; ++step) {
    const int peer = net.after(step);
    if (isFar(net, near, peer)) {
      dispatches.push_back(net.send(peer, 0, sources[peer].data, bytes));
    }
  }
  if (near == nullptr) {
    copyBlock(c.outputBlock(net.rank).data, c.inputBlock(net.rank).data, bytes);
  }
  for (Arrival& arrival : arrivals) co_await arrival;
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

/// Runs as all_to_all, with the counts of each pair sent ahead (buffer 0), which both compare.
Task allToAllVFar(NetContext& net, const Collective& c, const HostMap* near) {
  const size_t element = sizeOf(c.type);
  const Sources sources(c, net.rank, net.size);
  if (c.inputs[net.rank].count != c.outputs[net.rank].count) {
    throwCounts(c, net.rank, net.rank, c.inputs[net.rank].count);
  }
  std::vector<uint64_t> sent(net.size), told(net.size);
  std::vector<Arrival> arrivals(net.size), counts(net.size);
  std::vector<Dispatch> dispatches;
  for (int step = 1; step < net.size; ++step) {
    const int peer = net.before(step);
    if (!isFar(net, near, peer)) continue;
    const Block& block = c.outputs[peer];
    counts[peer] =
        net.receive(peer, 0, reinterpret_cast<std::byte*>(&told[peer]), sizeof told[peer]);
    arrivals[peer] = net.receive(peer, 1, block.data, block.count * element);
  }
  for (int step = 1; step < net.size; ++step) {
    const int peer = net.after(step);
    if (!isFar(net, near, peer)) continue;
    sent[peer] = c.inputs[peer].count;
    dispatches.push_back(
        net.send(peer, 0, reinterpret_cast<const std::byte*>(&sent[peer]), sizeof sent[peer]));
    dispatches.push_back(net.send(peer, 1, sources[peer].data, sent[peer] * element));
  }
  if (near == nullptr) {
    copyBlock(c.outputs[net.rank].data, c.inputs[net.rank].data,
              c.inputs[net.rank].count * element);
  }
  for (int step = 1; step < net.size; ++step) {
    const int peer = net.before(step);
    if (!isFar(net, near, peer)) continue;
    co_await counts[peer];
    if (told[peer] != c.outputs[peer].count) throwCounts(c, peer, net.rank, told[peer]);
  }
  for (Arrival& arrival : arrivals) co_await arrival;
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

namespace algorithms {

Algorithm allToAllNetDirect() {
  return {.name = "direct",
          .kinds = {CollectiveKind::AllToAll, CollectiveKind::AllToAllV},
          .run = allToAllDirect,
          .micros = straightMicros};
}

}  // namespace algorithms

}  // namespace ctran
