#include "ctran/collective/algorithm.h"
#include "ctran/collective/all_reduce/net/two_phase.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// One step: every rank sends its input to the root.
Task reduceDirectOverNet(NetContext& net, const Collective& c) {
  return reduceInOnePhase(net, c, c.root);
}

double reduceDirectOverNetMicros(const AlgorithmQuery& q) {
  const double peers = q.size - 1, moved = peers * static_cast<double>(q.bytes);
  return netMicros(q, {1, peers, moved, moved, crowdOf(q.size, false)});
}

}  // namespace

namespace algorithms {

Algorithm reduceNetDirect() {
  return {.name = "direct",
          .kinds = {CollectiveKind::Reduce},
          .run = reduceDirectOverNet,
          .micros = reduceDirectOverNetMicros};
}

}  // namespace algorithms

}  // namespace ctran
