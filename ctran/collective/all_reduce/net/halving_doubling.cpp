#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"
#include "ctran/collective/partial.h"

namespace ctran {
namespace {

/// Recursive halving: in each step a rank exchanges half of what it still works on with a partner,
/// and reduces the other half; the last step leaves it one part of the result. Then recursive
/// doubling, the same way back. 2 log2(n) steps, of which each rank sends 2 (n - 1) / n of the
/// data; where n is no power of two, two steps and the data twice more for the ranks that take part
/// for others. Each part is reduced on one rank, in the order of the halves.
Task allReduceHalvingDoubling(NetContext& net, const Collective& c) {
  constexpr uint32_t kFold = 0, kHalving = 1, kDoubling = 64, kUnfold = 128;
  const size_t element = sizeOf(c.type), bytes = c.blockBytes();
  const int core = coreOf(net.size), rank = net.rank;
  if (rank >= core) {
    Dispatch dispatch = net.send(rank - core, kFold, c.input, bytes);
    co_await dispatch;
    Arrival arrival = net.receive(rank - core, kUnfold, c.output, bytes);
    co_await arrival;
    co_return;
  }

  const Partition parts(c.count, core, element);
  const auto at = [&](int part) { return parts.begin(part) * element; };
  const auto span = [&](int begin, int end) { return at(end) - at(begin); };
  const ReduceFn partial = partialFn(c), complete = reduceFn(c.op.kind, c.type);
  std::byte* const scratch = net.scratch(bytes);
  const std::byte* current = c.input;  // what this rank has summed up so far
  const bool folds = rank + core < net.size;
  if (folds) {
    Arrival arrival = net.receive(rank + core, kFold, scratch, bytes);
    co_await arrival;
    const std::byte* sources[] = {current, scratch};
    if (c.count > 0) partial(c.output, sources, 2, c.count, 0);
    current = c.output;
  }

  int begin = 0, end = core;
  uint32_t step = kHalving;
  for (int distance = core / 2; distance > 0; distance /= 2, ++step) {
    const int peer = rank ^ distance, middle = begin + distance;
    const bool low = (rank & distance) == 0;
    const int sentBegin = low ? middle : begin, sentEnd = low ? end : middle;
    begin = low ? begin : middle;
    end = low ? middle : end;
    Arrival arrival = net.receive(peer, step, scratch, span(begin, end));
    Dispatch dispatch = net.send(peer, step, current + at(sentBegin), span(sentBegin, sentEnd));
    co_await arrival;
    co_await dispatch;
    const std::byte* own = current + at(begin);
    const std::byte* sources[] = {low ? own : scratch, low ? scratch : own};
    const size_t count = span(begin, end) / element;
    if (count > 0 && distance > 1) partial(c.output + at(begin), sources, 2, count, 0);
    if (count > 0 && distance == 1) {
      complete(c.output + at(begin), sources, 2, count, net.contributions());
    }
    current = c.output;
  }

  step = kDoubling;
  for (int distance = 1; distance < core; distance *= 2, ++step) {
    const int peer = rank ^ distance;
    const int other = (rank & distance) == 0 ? end : begin - distance;
    Arrival arrival = net.receive(peer, step, c.output + at(other), span(other, other + distance));
    Dispatch dispatch = net.send(peer, step, c.output + at(begin), span(begin, end));
    co_await arrival;
    co_await dispatch;
    begin = std::min(begin, other);
    end = begin + 2 * distance;
  }
  if (!folds) co_return;
  Dispatch dispatch = net.send(rank + core, kUnfold, c.output, bytes);
  co_await dispatch;
}

double allReduceHalvingDoublingMicros(const AlgorithmQuery& q) {
  const auto bytes = static_cast<double>(q.bytes);
  const double steps = 2 * halvingStepsOf(q.size), part = bytes * (q.size - 1) / q.size;
  const double folded = isPowerOfTwo(q.size) ? 0 : bytes;
  return netMicros(q, {steps, steps, 2 * (part + folded), part + folded});
}

}  // namespace

namespace algorithms {

Algorithm allReduceNetHalvingDoubling() {
  return {.name = "halving_doubling",
          .kinds = {CollectiveKind::AllReduce},
          .run = allReduceHalvingDoubling,
          .micros = allReduceHalvingDoublingMicros,
          .sumsPartially = true};
}

}  // namespace algorithms

}  // namespace ctran
