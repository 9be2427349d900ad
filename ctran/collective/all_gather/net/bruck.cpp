#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// For all_gather and all_gather_v (Bruck et al., 1997). In step k a rank sends all blocks that it
/// has to the one 2^k before it, and gets as many from the one 2^k after it: log2(n) steps, rounded
/// up, for any n; n - 1 blocks sent by each rank. Blocks are kept in the order in which they come,
/// starting with the rank's own, and copied to their places in the end.
Task allGatherBruck(NetContext& net, const Collective& c) {
  const size_t element = sizeOf(c.type);
  std::vector<size_t> offsets{0};
  for (int i = 0; i < net.size; ++i) {
    offsets.push_back(offsets.back() + c.outputBlock(net.after(i)).count * element);
  }
  std::byte* const blocks = net.scratch(offsets.back());
  copyBlock(blocks, c.input, c.blockBytes());
  uint32_t step = 0;
  for (int distance = 1; distance < net.size; distance *= 2, ++step) {
    const int count = std::min(distance, net.size - distance);
    Arrival arrival = net.receive(net.after(distance), step, blocks + offsets[distance],
                                  offsets[distance + count] - offsets[distance]);
    Dispatch dispatch = net.send(net.before(distance), step, blocks, offsets[count]);
    co_await arrival;
    co_await dispatch;
  }
  for (int i = 0; i < net.size; ++i) {
    copyBlock(c.outputBlock(net.after(i)).data, blocks + offsets[i], offsets[i + 1] - offsets[i]);
  }
}

double allGatherBruckMicros(const AlgorithmQuery& q) {
  const double levels = levelsOf(q.size);
  return netMicros(q, {levels, levels, q.others(), q.all()});
}

}  // namespace

namespace algorithms {

Algorithm allGatherNetBruck() {
  return {.name = "bruck",
          .kinds = {CollectiveKind::AllGather, CollectiveKind::AllGatherV},
          .run = allGatherBruck,
          .micros = allGatherBruckMicros};
}

}  // namespace algorithms

}  // namespace ctran
