#include "ctran/collective/gpu/reduction.h"

namespace ctran {
namespace {

/// Every rank sends all of its tensor to every other one, in packets, and reduces what comes, in
/// rank order: one step, 4/3 (n - 1) N bytes out of each rank (all_reduce/one_shot.cuh).
void allReduceOneShot(GpuContext& gpu, const Collective& c, const GpuTarget& target) {
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
  gpu.run(kernels.oneShot, gpu.shapeFor(packets, 24, target), &a, target);
}

/// Measured on two and four H200; of more ranks it is a guess.
SizeRange oneShotSizes(const AlgorithmQuery& query) {
  const size_t limit = query.size <= 2 ? 512 << 10 : query.size <= 4 ? 160 << 10 : 32 << 10;
  return {packetsOf(query, query.bytes) * kPacketData, 0, limit};
}

std::string whyNotOneShot(const AlgorithmQuery& query) {
  if (!fitsPackets(query)) return kNoPackets;
  if (packetsOf(query, query.bytes) <= slotPackets(query)) return {};
  return "its slots hold " + std::to_string(slotPackets(query)) + " packets";
}

}  // namespace

namespace algorithms {

Algorithm allReduceGpuOneShot() {
  return {.name = "one_shot",
          .kinds = {CollectiveKind::AllReduce},
          .run = allReduceOneShot,
          .whyNot = whyNotOneShot,
          .sizes = oneShotSizes,
          .prepare = prepareReduction};
}

}  // namespace algorithms

}  // namespace ctran
