#include <algorithm>

#include "ctran/collective/gpu/reduction.h"

namespace ctran {
namespace {

using Kind = CollectiveKind;

/// Every rank sends each part, in steps on flows, to the rank that reduces it, in rank order, and
/// that sends the result to the ranks that need it while the next step comes (reduce/pipeline.cuh).
void reduceInPipeline(GpuContext& gpu, const Collective& c, const GpuTarget& target) {
  GpuReduction reduction(gpu, c);
  device::ReduceArguments& a = reduction.arguments;
  const size_t most = reduction.most * reduction.element;
  const size_t room = a.shareWith == 0 ? gpu.team.stepBytes : gpu.team.stepBytes / 2;
  a.chunkBytes = GpuContext::chunkFor(most, room, gpu.flowsFor(target));
  a.chunks = ceilDiv(most, a.chunkBytes);
  if (a.chunks == 0) return;
  a.flows = static_cast<uint32_t>(std::min<size_t>(gpu.flowsFor(target), a.chunks));
  a.lookahead = 1;
  gpu.run(pipelineKernel(gpu.device, static_cast<int>(gpu.size), c.type, c.op.kind),
          gpu.shapeOfFlows(a.flows, target), &a, target);
}

void preparePipeline(GpuContext& gpu, const Collective& c) {
  static_cast<void>(pipelineKernel(gpu.device, static_cast<int>(gpu.size), c.type, c.op.kind));
}

}  // namespace

namespace algorithms {

Algorithm reduceGpuPipeline() {
  return {.name = "pipeline",
          .kinds = {Kind::AllReduce, Kind::Reduce, Kind::ReduceScatter, Kind::ReduceScatterV},
          .run = reduceInPipeline,
          .sizes = [](const AlgorithmQuery& query) { return SizeRange{query.bytes}; },
          .prepare = preparePipeline};
}

}  // namespace algorithms

}  // namespace ctran
