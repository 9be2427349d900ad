#include "ctran/collective/all_reduce/shm/pull.h"
#include "ctran/collective/algorithm.h"

namespace ctran {
namespace {

/// Runs as all-reduce, but only the root collects the parts.
Task reducePull(ShmContext& shm, const Collective& c) { return reduceByPulling(shm, c, c.root); }

}  // namespace

namespace algorithms {

Algorithm reduceShmPull() {
  return {.name = "pull",
          .kinds = {CollectiveKind::Reduce},
          .run = reducePull,
          .micros = reduceByPullingMicros,
          .readsPeers = true};
}

}  // namespace algorithms

}  // namespace ctran
