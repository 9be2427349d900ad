#include "ctran/collective/algorithm.h"
#include "ctran/collective/all_reduce/shm/two_phase.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// Runs as all-reduce, but only the root reads.
Task reduceDirect(ShmContext& shm, const Collective& c) { return reduceDirectly(shm, c, c.root); }

/// The root reads all others' contributions, and writes nothing that others read.
double reduceDirectMicros(const AlgorithmQuery& q) {
  const double read = static_cast<double>(q.bytes) * (q.size - 1);
  return inRoundsMicros({0, read, read}, q.size, 1);
}

}  // namespace

namespace algorithms {

Algorithm reduceShmDirect() {
  return {.name = "direct",
          .kinds = {CollectiveKind::Reduce},
          .run = reduceDirect,
          .micros = reduceDirectMicros};
}

}  // namespace algorithms

}  // namespace ctran
