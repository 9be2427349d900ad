#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"
#include "ctran/collective/partial.h"

namespace ctran {
namespace {

/// For reduce_scatter and reduce_scatter_v. Each block goes once around the ring, from the rank
/// after its owner to its owner, and every rank on the way adds its contribution: n - 1 steps, all
/// blocks but its own sent by each rank, over two connections.
Task reduceScatterRing(NetContext& net, const Collective& c) {
  const size_t element = sizeOf(c.type);
  size_t largest = 0;
  for (int r = 0; r < net.size; ++r) largest = std::max(largest, c.inputBlock(r).count * element);
  std::byte* const scratch = net.scratch(2 * largest);
  const int self = net.place(), next = net.at(self + 1), previous = net.at(self - 1);
  /// Returns the block for the rank `step` places before this one.
  const auto blockFor = [&net, &c, self](int step) { return c.inputBlock(net.at(self - step)); };
  const std::byte* sent = blockFor(1).data;
  for (int step = 0; step < net.size - 1; ++step) {
    const Block own = blockFor(step + 2);
    const auto buffer = static_cast<uint32_t>(step);
    std::byte* const sum = scratch + step % 2 * largest;
    Arrival arrival = net.receive(previous, buffer, sum, own.count * element);
    Dispatch dispatch = net.send(next, buffer, sent, blockFor(step + 1).count * element);
    co_await arrival;
    co_await dispatch;
    const std::byte* sources[] = {sum, own.data};
    const bool last = step == net.size - 2;
    if (own.count > 0 && !last) partialFn(c)(sum, sources, 2, own.count, 0);
    if (own.count > 0 && last) {
      reduceFn(c.op.kind, c.type)(c.output, sources, 2, own.count, net.contributions());
    }
    sent = sum;
  }
}

}  // namespace

namespace algorithms {

Algorithm reduceScatterNetRing() {
  return {.name = "ring",
          .kinds = {CollectiveKind::ReduceScatter, CollectiveKind::ReduceScatterV},
          .run = reduceScatterRing,
          .micros = oneByOneMicros,
          .sumsPartially = true};
}

}  // namespace algorithms

}  // namespace ctran
