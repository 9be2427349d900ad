#include "ctran/collective/all_to_all/direct.h"
#include "ctran/collective/all_to_all/sources.h"
#include "ctran/collective/tcp_algorithms.h"

namespace ctran {
namespace {

/// Whether blocks go to a rank, and come from it, over TCP.
bool isFar(const TcpContext& tcp, const HostMap* near, int peer) {
  return near == nullptr || near->hostOf(peer) != near->hostOf(tcp.rank);
}

}  // namespace

Task allToAllDirect(TcpContext& tcp, const Collective& c) { return allToAllFar(tcp, c, nullptr); }

Task allToAllVDirect(TcpContext& tcp, const Collective& c) { return allToAllVFar(tcp, c, nullptr); }

/// One step: every block goes straight to its rank, nearest first. Every byte travels once.
Task allToAllFar(TcpContext& tcp, const Collective& c, const HostMap* near) {
  const size_t bytes = c.blockBytes();
  const Sources sources(c, tcp.rank, tcp.size);
  std::vector<Arrival> arrivals;
  std::vector<Dispatch> dispatches;
  for (int step = 1; step < tcp.size; ++step) {
    const int peer = tcp.before(step);
    if (!isFar(tcp, near, peer)) continue;
    arrivals.push_back(tcp.receive(peer, 0, c.outputBlock(peer).data, bytes));
  }
  for (int step = 1; step < tcp.size; ++step) {
    const int peer = tcp.after(step);
    if (isFar(tcp, near, peer)) {
      dispatches.push_back(tcp.send(peer, 0, sources[peer].data, bytes));
    }
  }
  if (near == nullptr) {
    copyBlock(c.outputBlock(tcp.rank).data, c.inputBlock(tcp.rank).data, bytes);
  }
  for (Arrival& arrival : arrivals) co_await arrival;
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

/// As all_to_all, with the counts of each pair sent ahead (buffer 0), which both compare.
Task allToAllVFar(TcpContext& tcp, const Collective& c, const HostMap* near) {
  const size_t element = sizeOf(c.type);
  const Sources sources(c, tcp.rank, tcp.size);
  if (c.inputs[tcp.rank].count != c.outputs[tcp.rank].count) {
    throwCounts(c, tcp.rank, tcp.rank, c.inputs[tcp.rank].count);
  }
  std::vector<uint64_t> sent(tcp.size), told(tcp.size);
  std::vector<Arrival> arrivals(tcp.size), counts(tcp.size);
  std::vector<Dispatch> dispatches;
  for (int step = 1; step < tcp.size; ++step) {
    const int peer = tcp.before(step);
    if (!isFar(tcp, near, peer)) continue;
    const Block& block = c.outputs[peer];
    counts[peer] =
        tcp.receive(peer, 0, reinterpret_cast<std::byte*>(&told[peer]), sizeof told[peer]);
    arrivals[peer] = tcp.receive(peer, 1, block.data, block.count * element);
  }
  for (int step = 1; step < tcp.size; ++step) {
    const int peer = tcp.after(step);
    if (!isFar(tcp, near, peer)) continue;
    sent[peer] = c.inputs[peer].count;
    dispatches.push_back(
        tcp.send(peer, 0, reinterpret_cast<const std::byte*>(&sent[peer]), sizeof sent[peer]));
    dispatches.push_back(tcp.send(peer, 1, sources[peer].data, sent[peer] * element));
  }
  if (near == nullptr) {
    copyBlock(c.outputs[tcp.rank].data, c.inputs[tcp.rank].data,
              c.inputs[tcp.rank].count * element);
  }
  for (int step = 1; step < tcp.size; ++step) {
    const int peer = tcp.before(step);
    if (!isFar(tcp, near, peer)) continue;
    co_await counts[peer];
    if (told[peer] != c.outputs[peer].count) throwCounts(c, peer, tcp.rank, told[peer]);
  }
  for (Arrival& arrival : arrivals) co_await arrival;
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

}  // namespace ctran
