#include "ctran/collective/all_to_all/rows.cuh"

#include <string>

#include "ctran/base/error.h"
#include "ctran/collective/gpu/context.h"
#include "ctran/collective/row_exchange.h"

namespace ctran {
namespace {

/// Rows in the order of the ranks, at both ends.
void exchangeRowsOnGpus(GpuContext& gpu, const Collective& c, const GpuTarget& target) {
  const RowExchange& x = *c.rows;
  if (x.sendIndices || x.chunkRows || x.dedup || !c.outputs.empty()) {
    throw Error(ErrorKind::Unsupported, "rows and chunks cannot be listed on GPUs in this version",
                {}, std::string(nameOf(c.kind)),
                "put the rows in the order of the ranks, and use gpu.devicealltoallv_single");
  }
  device::CountRowsArguments count{};
  count.team = gpu.team;
  count.sendCounts = reinterpret_cast<const device::i64*>(x.sendCounts);
  count.expected = reinterpret_cast<const device::i64*>(x.expected);
  count.received = reinterpret_cast<device::i64*>(x.received);
  count.inputRows = x.inputRows;
  count.outputRows = x.outputRows;
  count.rowBytes = c.blockBytes();
  const RowKernels& kernels = RowKernels::of(gpu.device, static_cast<int>(gpu.size));
  gpu.run(kernels.count, {1, 64}, &count, target);
  device::MoveRowsArguments move{};
  move.team = gpu.team;
  move.input = bytesAt(c.input);
  move.output = bytesAt(c.output);
  move.flows = gpu.flowsOfPair(target);
  gpu.run(kernels.move, gpu.shapeOfFlows(device::moveRowsFlows(gpu.size, move.flows), target),
          &move, target);
}

void prepareRows(GpuContext& gpu, const Collective&) {
  static_cast<void>(RowKernels::of(gpu.device, static_cast<int>(gpu.size)));
}

}  // namespace

namespace algorithms {

Algorithm allToAllGpuRows() {
  return {.name = "rows",
          .kinds = {CollectiveKind::AllToAllVDynamic},
          .run = exchangeRowsOnGpus,
          .sizes = [](const AlgorithmQuery&) { return SizeRange{}; },
          .prepare = prepareRows};
}

}  // namespace algorithms

}  // namespace ctran
