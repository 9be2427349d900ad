#include "ctran/collective/gpu/reduction.h"

#include <algorithm>

namespace ctran {
namespace {

using Kind = CollectiveKind;

/// Elements of each part but the last ones.
size_t shareOf(size_t count, size_t element, size_t size) {
  const size_t grain = std::max<size_t>(1, 16 / element);
  return ceilDiv(ceilDiv(count, size), grain) * grain;
}

}  // namespace

GpuReduction::GpuReduction(const GpuContext& gpu, const Collective& c) {
  const DeviceReduction reduction = deviceReduction(c.type, c.op.kind);
  element = reduction.elementBytes;
  count = c.count * reduction.perElement;
  device::ReduceArguments& a = arguments;
  a.team = gpu.team;
  a.factor = c.op.factor;
  a.factorAt = c.op.factorAt;
  if (c.kind == Kind::ReduceScatter || c.kind == Kind::ReduceScatterV) {
    for (uint32_t r = 0; r < gpu.size; ++r) {
      const Block block = c.inputBlock(static_cast<int>(r));
      a.parts[r] = block.data;
      a.counts[r] = block.count * reduction.perElement;
    }
    a.outputs[gpu.rank] = c.output;
  } else {
    const bool whole = isReducedByRoot(c.kind, count * element);
    const auto root = static_cast<uint32_t>(c.root);
    const size_t share = shareOf(count, element, gpu.size);
    const bool gets = c.kind == Kind::AllReduce || root == gpu.rank;
    for (uint32_t r = 0; r < gpu.size; ++r) {
      const size_t begin = whole ? (r > root ? count : 0) : std::min(count, r * share);
      const size_t end = whole ? (r < root ? 0 : count) : std::min(count, (r + 1) * share);
      a.parts[r] = c.input + begin * element;
      a.outputs[r] = gets ? c.output + begin * element : nullptr;
      a.counts[r] = end - begin;
    }
    a.shareWith = c.kind == Kind::AllReduce ? (1u << gpu.size) - 1 : 1u << root;
    if (whole) a.shareWith = 0;
  }
  for (uint32_t r = 0; r < gpu.size; ++r) most = std::max<size_t>(most, a.counts[r]);
}

void prepareReduction(GpuContext& gpu, const Collective& c) {
  static_cast<void>(ReducingKernels::of(gpu.device, static_cast<int>(gpu.size), c.type, c.op.kind));
}

size_t longestPart(const AlgorithmQuery& query) {
  if (query.kind != Kind::AllReduce && query.kind != Kind::Reduce) return query.largest;
  if (isReducedByRoot(query.kind, query.bytes)) return query.bytes;
  const size_t count = query.bytes / query.element;
  return std::min(count, shareOf(count, query.element, query.size)) * query.element;
}

size_t packetsOf(const AlgorithmQuery& query, size_t bytes) {
  if (!fitsPackets(query)) return 0;
  return ceilDiv(bytes / query.element, kPacketData / query.element);
}

}  // namespace ctran
