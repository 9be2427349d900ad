#include <algorithm>

#include "ctran/collective/gpu/reduction.h"
#include "ctran/gpu/device/line.cuh"

namespace ctran {
namespace {

using Kind = CollectiveKind;

constexpr size_t kUnitData = device::kUnitWords * 16;
constexpr size_t kUnitRoom = device::kUnitSlots * 16;

/// Every rank sends each part, in lines, to the rank that reduces it, in rank order, and that sends
/// the result to the ranks that need it (reduce/lines.cuh says how many bytes).
void reduceInLines(GpuContext& gpu, const Collective& c, const GpuTarget& target) {
  GpuReduction reduction(gpu, c);
  device::ReduceArguments& a = reduction.arguments;
  for (uint32_t r = 0; r < gpu.size; ++r) {
    a.packets[r] = static_cast<uint32_t>(
        std::max<size_t>(1, ceilDiv(a.counts[r] * reduction.element, kUnitData)));
  }
  const size_t units = ceilDiv(reduction.most * reduction.element, kUnitData);
  a.most = static_cast<uint32_t>(std::max<size_t>(1, units));
  gpu.run(linesKernel(gpu.device, static_cast<int>(gpu.size), c.type, c.op.kind),
          gpu.shapeFor(units * 32, 128, target), &a, target);
}

void prepareLines(GpuContext& gpu, const Collective& c) {
  static_cast<void>(linesKernel(gpu.device, static_cast<int>(gpu.size), c.type, c.op.kind));
}

SizeRange linesSizes(const AlgorithmQuery& query) {
  return {longestPart(query) * query.size, kLinesFrom};
}

std::string whyNotLines(const AlgorithmQuery& query) {
  if (query.gpus->lineBytes == 0) return "not all GPUs see each other over NVLink";
  const bool oneStep = query.kind == Kind::ReduceScatter || query.kind == Kind::ReduceScatterV ||
                       isReducedByRoot(query.kind, query.bytes);
  const size_t most = query.gpus->lineBytes / kUnitRoom / (oneStep ? 1 : 2);  // units
  if (ceilDiv(longestPart(query), kUnitData) <= most) return {};
  return "its memory holds parts of up to " + std::to_string(most * kUnitData) + " bytes";
}

}  // namespace

namespace algorithms {

Algorithm reduceGpuLines() {
  return {.name = "lines",
          .kinds = {Kind::AllReduce, Kind::Reduce, Kind::ReduceScatter, Kind::ReduceScatterV},
          .run = reduceInLines,
          .whyNot = whyNotLines,
          .sizes = linesSizes,
          .prepare = prepareLines};
}

}  // namespace algorithms

}  // namespace ctran
