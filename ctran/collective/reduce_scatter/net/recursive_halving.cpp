#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"
#include "ctran/collective/partial.h"

namespace ctran {
namespace {

/// For reduce_scatter and reduce_scatter_v. In each step a rank exchanges half of the blocks that
/// it still works on with a partner, and reduces the other half: log2(n) steps, (n - 1) / n of the
/// data sent by each rank. Where n is no power of two, two steps more, in which the ranks that are
/// left over give all their data to others, and get their blocks.
Task reduceScatterRecursiveHalving(NetContext& net, const Collective& c) {
  const size_t element = sizeOf(c.type);
  const int core = coreOf(net.size), rank = net.rank;
  const auto steps = static_cast<uint32_t>(net.size), unfold = 2 * steps;
  if (rank >= core) {
    std::vector<Dispatch> dispatches;
    for (int r = 0; r < net.size; ++r) {
      const Block block = c.inputBlock(r);
      dispatches.push_back(
          net.send(rank - core, static_cast<uint32_t>(r), block.data, block.count * element));
    }
    for (Dispatch& dispatch : dispatches) co_await dispatch;
    Arrival arrival =
        net.receive(rank - core, unfold, c.output, c.inputBlock(rank).count * element);
    co_await arrival;
    co_return;
  }

  // For each rank of the core its block, and that of the rank it stands for.
  std::vector<size_t> offsets(net.size), begins{0};
  size_t bytes = 0;
  for (int r = 0; r < core; ++r) {
    for (int owner = r; owner < net.size; owner += core) {
      offsets[owner] = bytes;
      bytes += c.inputBlock(owner).count * element;
    }
    begins.push_back(bytes);
  }
  std::byte* const sums = net.scratch(2 * bytes);
  std::byte* const got = sums + bytes;
  for (int r = 0; r < net.size; ++r) {
    copyBlock(sums + offsets[r], c.inputBlock(r).data, c.inputBlock(r).count * element);
  }
  const auto reduce = [&](size_t begin, size_t end, bool last) {
    const std::byte* sources[] = {sums + begin, got + begin};
    if (begin == end) return;
    (last ? reduceFn(c.op.kind, c.type) : partialFn(c))(
        sums + begin, sources, 2, (end - begin) / element, last ? net.contributions() : 0);
  };
  const int extra = rank + core;
  if (extra < net.size) {
    std::vector<Arrival> arrivals;
    for (int r = 0; r < net.size; ++r) {
      arrivals.push_back(net.receive(extra, static_cast<uint32_t>(r), got + offsets[r],
                                     c.inputBlock(r).count * element));
    }
    for (Arrival& arrival : arrivals) co_await arrival;
    reduce(0, bytes, false);
  }
  int begin = 0, end = core;
  uint32_t step = steps;
  for (int distance = core / 2; distance > 0; distance /= 2, ++step) {
    const int middle = begin + distance;
    const bool low = (rank & distance) == 0;
    const size_t sentBegin = begins[low ? middle : begin], sentEnd = begins[low ? end : middle];
    (low ? end : begin) = middle;
    Arrival arrival =
        net.receive(rank ^ distance, step, got + begins[begin], begins[end] - begins[begin]);
    Dispatch dispatch = net.send(rank ^ distance, step, sums + sentBegin, sentEnd - sentBegin);
    co_await arrival;
    co_await dispatch;
    reduce(begins[begin], begins[end], distance == 1);
  }
  copyBlock(c.output, sums + offsets[rank], c.inputBlock(rank).count * element);
  if (extra >= net.size) co_return;
  Dispatch dispatch =
      net.send(extra, unfold, sums + offsets[extra], c.inputBlock(extra).count * element);
  co_await dispatch;
}

}  // namespace

namespace algorithms {

Algorithm reduceScatterNetRecursiveHalving() {
  return {.name = "recursive_halving",
          .kinds = {CollectiveKind::ReduceScatter, CollectiveKind::ReduceScatterV},
          .run = reduceScatterRecursiveHalving,
          .micros = byHalvesMicros,
          .sumsPartially = true};
}

}  // namespace algorithms

}  // namespace ctran
