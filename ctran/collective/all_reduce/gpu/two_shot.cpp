#include "ctran/collective/gpu/reduction.h"

namespace ctran {
namespace {

/// Each rank reduces a part of what all send it in packets, in rank order, and sends the result to
/// all: two steps, 8/3 (n - 1)/n N bytes out of each rank (all_reduce/two_shot.cuh).
void allReduceTwoShot(GpuContext& gpu, const Collective& c, const GpuTarget& target) {
  GpuReduction reduction(gpu, c);
  device::ReduceArguments a{};
  a.team = gpu.team;
  a.factor = c.op.factor;
  a.factorAt = c.op.factorAt;
  a.parts[0] = c.input;
  a.outputs[0] = c.output;
  a.counts[0] = reduction.count;
  const size_t packets = ceilDiv(reduction.count, kPacketData / reduction.element);
  const auto& kernels =
      ReducingKernels::of(gpu.device, static_cast<int>(gpu.size), c.type, c.op.kind);
  gpu.run(kernels.twoShot, gpu.shapeFor(ceilDiv(packets, gpu.size), 88, target), &a, target);
}

/// Up to where lines are faster; where there are none, up to where the pipeline is.
SizeRange twoShotSizes(const AlgorithmQuery& query) {
  if (query.gpus->lineBytes != 0) return {query.bytes, 0, kLinesFrom - 1};
  constexpr size_t kLimit = 2200000;
  return {packetsOf(query, query.bytes) * kPacketData, 0, kLimit};
}

std::string whyNotTwoShot(const AlgorithmQuery& query) {
  if (!fitsPackets(query)) return kNoPackets;
  const size_t share = ceilDiv(packetsOf(query, query.bytes), query.size);
  if (2 * share <= slotPackets(query)) return {};
  return "its slots hold " + std::to_string(slotPackets(query) / 2) + " packets of a part";
}

}  // namespace

namespace algorithms {

Algorithm allReduceGpuTwoShot() {
  return {.name = "two_shot",
          .kinds = {CollectiveKind::AllReduce},
          .run = allReduceTwoShot,
          .whyNot = whyNotTwoShot,
          .sizes = twoShotSizes,
          .prepare = prepareReduction};
}

}  // namespace algorithms

}  // namespace ctran
