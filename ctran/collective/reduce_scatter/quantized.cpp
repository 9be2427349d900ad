#include "ctran/collective/reduce_scatter/quantized.h"

#include <algorithm>

#include "ctran/base/error.h"
#include "ctran/collective/reduce_scatter/quantized.cuh"

namespace ctran {

void launchQuantized(const GpuContext& gpu, const Collective& c, const Quantization& quantization,
                     const GpuTarget& target) {
  if (c.type != DataType::Float32 ||
      (c.op.kind != ReduceKind::Sum && c.op.kind != ReduceKind::Avg)) {
    throw Error(ErrorKind::Unsupported,
                "a quantized reduce_scatter is a sum or an average of float32", {}, c.describe(),
                "use reduce_scatter_single");
  }
  device::QuantizedArguments a{};
  a.team = gpu.team;
  for (uint32_t r = 0; r < gpu.size; ++r) {
    a.parts[r] = reinterpret_cast<const float*>(c.inputBlock(static_cast<int>(r)).data);
  }
  a.output = reinterpret_cast<float*>(c.output);
  a.count = c.count;
  a.seed = quantization.seed;
  a.seedAt = reinterpret_cast<const device::u64*>(quantization.seedAt);
  a.average = c.op.kind == ReduceKind::Avg ? 1 : 0;
  const size_t wire = c.count * 2;
  a.chunkBytes = GpuContext::chunkFor(wire, gpu.team.stepBytes, gpu.flowsFor(target));
  a.chunks = ceilDiv(wire, a.chunkBytes);
  if (a.chunks == 0) return;
  a.flows = static_cast<uint32_t>(std::min<size_t>(gpu.flowsFor(target), a.chunks));
  gpu.run(quantizedKernel(gpu.device, static_cast<int>(gpu.size)),
          gpu.shapeOfFlows(a.flows, target), &a, target);
}

}  // namespace ctran
