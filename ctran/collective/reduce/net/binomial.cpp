#include "ctran/collective/binomial.h"
#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"
#include "ctran/collective/partial.h"

namespace ctran {
namespace {

/// Every rank reduces what its children in a binomial tree send with its own input, and sends that
/// to its parent: log2(n) steps, rounded up, in each of which a rank sends or receives all the
/// data.
Task reduceBinomial(NetContext& net, const Collective& c) {
  const Binomial tree(net.place(), net.placeOf(c.root), net.size);
  const size_t bytes = c.blockBytes();
  std::byte* const got = net.scratch(2 * bytes);
  std::byte* const sum = tree.isRoot() ? c.output : got + bytes;
  const std::byte* own = c.input;
  for (int child = 1; child < tree.end() && tree.hasChild(child); child *= 2) {
    Arrival arrival = net.receive(net.at(tree.rankOf(child)), 0, got, bytes);
    co_await arrival;
    const std::byte* sources[] = {own, got};
    const bool last = tree.isRoot() && !tree.hasChild(2 * child);
    if (c.count > 0 && !last) partialFn(c)(sum, sources, 2, c.count, 0);
    if (c.count > 0 && last) {
      reduceFn(c.op.kind, c.type)(sum, sources, 2, c.count, net.contributions());
    }
    own = sum;
  }
  if (tree.isRoot()) co_return;
  Dispatch dispatch = net.send(net.at(tree.parent()), 0, own, bytes);
  co_await dispatch;
}

double reduceBinomialMicros(const AlgorithmQuery& q) {
  const double levels = levelsOf(q.size), moved = levels * static_cast<double>(q.bytes);
  return netMicros(q, {levels, levels, moved, moved});
}

}  // namespace

namespace algorithms {

Algorithm reduceNetBinomial() {
  return {.name = "binomial",
          .kinds = {CollectiveKind::Reduce},
          .run = reduceBinomial,
          .micros = reduceBinomialMicros,
          .sumsPartially = true};
}

}  // namespace algorithms

}  // namespace ctran
