#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// Bruck et al., 1997. A block that has to go k ranks on is passed on by 2^j for each bit j of k,
/// together with all others of that bit: log2(n) steps, rounded up, for n / 2 * log2(n) blocks sent
/// by each rank. For small blocks, where a message costs more than its bytes.
Task allToAllBruck(NetContext& net, const Collective& c) {
  const size_t bytes = c.blockBytes();
  const auto half = static_cast<size_t>((net.size + 1) / 2);
  // blocks[i]: at first the one for the rank i after this; in the end that of the rank i before.
  std::byte* const blocks = net.scratch(bytes * (net.size + 2 * half));
  std::byte* const sent = blocks + bytes * net.size;
  std::byte* const got = sent + bytes * half;
  for (int i = 0; i < net.size; ++i) {
    copyBlock(blocks + i * bytes, c.inputBlock(net.after(i)).data, bytes);
  }
  uint32_t step = 0;
  for (int distance = 1; distance < net.size; distance *= 2, ++step) {
    size_t count = 0;
    for (int i = distance; i < net.size; ++i) {
      if ((i & distance) != 0) copyBlock(sent + count++ * bytes, blocks + i * bytes, bytes);
    }
    Arrival arrival = net.receive(net.before(distance), step, got, count * bytes);
    Dispatch dispatch = net.send(net.after(distance), step, sent, count * bytes);
    co_await arrival;
    co_await dispatch;
    count = 0;
    for (int i = distance; i < net.size; ++i) {
      if ((i & distance) != 0) copyBlock(blocks + i * bytes, got + count++ * bytes, bytes);
    }
  }
  for (int i = 0; i < net.size; ++i) {
    copyBlock(c.outputBlock(net.before(i)).data, blocks + i * bytes, bytes);
  }
}

double allToAllBruckMicros(const AlgorithmQuery& q) {
  const double levels = levelsOf(q.size);
  return netMicros(q, {levels, levels, levels / 2 * q.all(), 2 * q.all()});
}

}  // namespace

namespace algorithms {

Algorithm allToAllNetBruck() {
  return {.name = "bruck",
          .kinds = {CollectiveKind::AllToAll},
          .run = allToAllBruck,
          .micros = allToAllBruckMicros};
}

}  // namespace algorithms

}  // namespace ctran
