#include <algorithm>

#include "ctran/collective/gpu/reduction.h"

namespace ctran {
namespace {

using Kind = CollectiveKind;

/// Every rank sends each part, in packets, to the rank that reduces it, in rank order: one step,
/// 4/3 of the bytes of the collective (reduce/packets.cuh). A reduce is one part, the root's.
void reduceInPackets(GpuContext& gpu, const Collective& c, const GpuTarget& target) {
  GpuReduction reduction(gpu, c);
  device::ReduceArguments& a = reduction.arguments;
  const size_t perPacket = kPacketData / reduction.element;
  for (uint32_t r = 0; r < gpu.size; ++r) {
    a.packets[r] = static_cast<uint32_t>(std::max<size_t>(1, ceilDiv(a.counts[r], perPacket)));
  }
  const auto& kernels =
      ReducingKernels::of(gpu.device, static_cast<int>(gpu.size), c.type, c.op.kind);
  gpu.run(kernels.packets, gpu.shapeFor(ceilDiv(reduction.most, perPacket), 48, target), &a,
          target);
}

SizeRange reducePacketsSizes(const AlgorithmQuery& query) {
  return {packetsOf(query, longestPart(query)) * kPacketData, 0, kPacketLimit};
}

std::string whyNotReducePackets(const AlgorithmQuery& query) {
  if (!fitsPackets(query)) return kNoPackets;
  if (query.kind == Kind::Reduce && !isReducedByRoot(query.kind, query.bytes)) {
    return "the root reduces up to " + std::to_string(kPacketLimit) + " bytes alone";
  }
  if (packetsOf(query, longestPart(query)) <= slotPackets(query)) return {};
  return "its slots hold " + std::to_string(slotPackets(query)) + " packets of a block";
}

}  // namespace

namespace algorithms {

Algorithm reduceGpuPackets() {
  return {.name = "packets",
          .kinds = {Kind::Reduce, Kind::ReduceScatter, Kind::ReduceScatterV},
          .run = reduceInPackets,
          .whyNot = whyNotReducePackets,
          .sizes = reducePacketsSizes,
          .prepare = prepareReduction};
}

}  // namespace algorithms

}  // namespace ctran
