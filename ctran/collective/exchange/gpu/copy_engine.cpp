#include "ctran/collective/exchange/copy_engine.h"

#include "ctran/collective/gpu/context.h"

namespace ctran {
namespace {

/// See CopyEngines.
void exchangeByCopyEngines(GpuContext& gpu, const Collective& c, const GpuTarget& target) {
  gpu.copies->launch(c, target.stream);
}

/// The ranks hand over memory.
void prepareCopyEngines(GpuContext& gpu, const Collective&) {
  if (!gpu.copies) gpu.copies = gpu.makeCopies();
}

std::string whyNotCopyEngines(const AlgorithmQuery& query) {
  if (query.size == 1) return "there is one rank";
  if (query.gpus->throughHost) return "data goes through the host's memory";
  return {};
}

}  // namespace

namespace algorithms {

Algorithm exchangeGpuCopyEngine() {
  return {.name = CopyEngines::kName,
          .kinds = {CollectiveKind::AllGather, CollectiveKind::AllToAll, CollectiveKind::Broadcast},
          .run = exchangeByCopyEngines,
          .whyNot = whyNotCopyEngines,
          .prepare = prepareCopyEngines,
          .preparesTogether = true};
}

}  // namespace algorithms

}  // namespace ctran
