#include "ctran/collective/algorithm.h"
#include "ctran/collective/all_to_all/sources.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// n - 1 steps: in step k every rank sends to the one k after it, and receives from the one k
/// before it, so that each connection carries one block at a time. Every byte travels once.
Task blocksPairwise(NetContext& net, const Collective& c) {
  const size_t bytes = c.blockBytes();
  const Sources sources(c, net.rank, net.size);
  copyBlock(c.outputBlock(net.rank).data, c.inputBlock(net.rank).data, bytes);
  for (int step = 1; step < net.size; ++step) {
    const int to = net.after(step), from = net.before(step);
    Arrival arrival = net.receive(from, 0, c.outputBlock(from).data, bytes);
    Dispatch dispatch = net.send(to, 0, sources[to].data, bytes);
    co_await arrival;
    co_await dispatch;
  }
}

/// Runs as all_to_all, with the count of each block sent ahead (buffer 0), which both compare.
Task countedPairwise(NetContext& net, const Collective& c) {
  const size_t element = sizeOf(c.type);
  const Sources sources(c, net.rank, net.size);
  const uint64_t own = c.inputs[net.rank].count;
  if (own != c.outputs[net.rank].count) throwCounts(c, net.rank, net.rank, own);
  copyBlock(c.outputs[net.rank].data, c.inputs[net.rank].data, own * element);
  for (int step = 1; step < net.size; ++step) {
    const int to = net.after(step), from = net.before(step);
    uint64_t told = 0;
    const uint64_t sent = c.inputs[to].count;
    const Block& block = c.outputs[from];
    Arrival count = net.receive(from, 0, reinterpret_cast<std::byte*>(&told), sizeof told);
    Arrival arrival = net.receive(from, 1, block.data, block.count * element);
    Dispatch telling = net.send(to, 0, reinterpret_cast<const std::byte*>(&sent), sizeof sent);
    Dispatch dispatch = net.send(to, 1, sources[to].data, sent * element);
    co_await count;
    if (told != block.count) throwCounts(c, from, net.rank, told);
    co_await arrival;
    co_await telling;
    co_await dispatch;
  }
}

Task allToAllPairwise(NetContext& net, const Collective& c) {
  return c.kind == CollectiveKind::AllToAllV ? countedPairwise(net, c) : blocksPairwise(net, c);
}

}  // namespace

namespace algorithms {

Algorithm allToAllNetPairwise() {
  return {.name = "pairwise",
          .kinds = {CollectiveKind::AllToAll, CollectiveKind::AllToAllV},
          .run = allToAllPairwise,
          .micros = oneByOneMicros};
}

}  // namespace algorithms

}  // namespace ctran
