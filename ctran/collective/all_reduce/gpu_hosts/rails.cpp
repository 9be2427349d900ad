#include <algorithm>

#include "ctran/collective/gpu/hosts_call.h"
#include "ctran/collective/gpu/hosts_cost.h"
#include "ctran/collective/gpu/shares.h"
#include "ctran/collective/hosts_context.h"

namespace ctran {
namespace {

/// Reduce-scatter inside each domain, by kernels; all-reduce of each part among the ranks that have
/// it, one of each domain, by the host; all-gather inside. A rank sends as much over the network as
/// if each domain had one rank, divided by the number of rails. In pieces: while one is between the
/// domains, the one before is gathered, and the next one reduced.
void allReduceOnRails(GpuHostsCall& call, const Collective& c) {
  const size_t element = sizeOf(c.type);
  const Shares shares(call, c.count, element);
  const Staging slots = call.stage(2 * call.stepBytes);
  std::vector<size_t> started(shares.pieces);
  for (size_t k = 0; k <= shares.pieces; ++k) {
    if (k < shares.pieces) {
      const Block own = shares.own(k, c.output);
      Collective scatter = partialOf(c);
      scatter.kind = CollectiveKind::ReduceScatterV;
      scatter.inputs = shares.blocks(k, c.input);
      scatter.output = own.data;
      scatter.count = own.count;
      call.inDomain(scatter);
      const Staging slot = slots + k % 2 * call.stepBytes;
      call.copy(slot.device, own.data, own.count * element);
      Collective between = shares.onRail(c, k);
      if (between.op.kind == ReduceKind::PremulSum) between.op = {ReduceKind::Sum};
      between.input = between.output = slot.host;
      started[k] = call.start({between});
    }
    if (k > 0) {
      const Block own = shares.own(k - 1, c.output);
      call.await(started[k - 1]);
      call.copy(own.data, (slots + (k - 1) % 2 * call.stepBytes).device, own.count * element);
      call.inDomain(shares.gather(k - 1, c));
    }
  }
}

double allReduceOnRailsMicros(const AlgorithmQuery& q) {
  const auto bytes = static_cast<double>(q.bytes);
  const double share = bytes / q.map->rails();
  return 2 * kernelMicros(q, bytes) + 2 * busMicros(share) + kHandOverMicros +
         railMicros(q, q.kind, share);
}

}  // namespace

namespace algorithms {

Algorithm allReduceGpuHostsRails() {
  return {.name = "rails",
          .kinds = {CollectiveKind::AllReduce},
          .run = allReduceOnRails,
          .micros = allReduceOnRailsMicros,
          .sumsPartially = true};
}

}  // namespace algorithms

}  // namespace ctran
