#include "ctran/collective/gpu/hosts_call.h"
#include "ctran/collective/gpu/hosts_cost.h"
#include "ctran/collective/gpu/strips.h"
#include "ctran/collective/hosts_context.h"

namespace ctran {
namespace {

/// For each domain a reduce-scatter inside this one, by a kernel, of what its ranks are to have:
/// each rank gets the sums for those that share its rail. Then a reduce-scatter of each rail by the
/// host. In strips: while one is between the domains, the next one is reduced.
void reduceScatterOnRails(GpuHostsCall& call, const Collective& c) {
  const HostMap& domains = call.domains;
  const auto count = static_cast<size_t>(domains.hosts());
  const auto local = static_cast<int>(domains.local().size());
  const Strips strips(c.count, sizeOf(c.type), call.stepBytes / count);
  const size_t slotBytes = 2 * call.stepBytes;  // what goes, and what comes
  const Staging slots = call.stage(2 * slotBytes);
  std::vector<size_t> started(strips.strips);
  for (size_t k = 0; k <= strips.strips; ++k) {
    if (k < strips.strips) {
      const Staging out = slots + k % 2 * slotBytes;
      const size_t bytes = strips.countOf(k) * strips.element;
      for (int d = 0; d < domains.hosts(); ++d) {
        Collective inside = partialOf(c);
        inside.inputs.clear();
        for (int place = 0; place < local; ++place) {
          inside.inputs.push_back(strips.part(k, c.inputBlock(rankAt(call, d, place))));
        }
        inside.count = strips.countOf(k);
        inside.output = (out + static_cast<size_t>(d) * bytes).device;
        call.inDomain(inside);
      }
      Collective between;
      between.kind = c.kind;
      between.type = c.type;
      between.op = c.op.kind == ReduceKind::PremulSum ? ReduceOp{ReduceKind::Sum} : c.op;
      between.count = strips.countOf(k);
      between.onRail = true;
      between.input = out.host;
      between.output = (out + call.stepBytes).host;
      started[k] = call.start({between});
    }
    if (k > 0) {
      const Block own = strips.part(k - 1, {c.output, c.count});
      call.await(started[k - 1]);
      call.copy(own.data, (slots + (k - 1) % 2 * slotBytes + call.stepBytes).device,
                own.count * strips.element);
    }
  }
}

double reduceScatterOnRailsMicros(const AlgorithmQuery& q) {
  const auto bytes = static_cast<double>(q.bytes);
  const double onRail = bytes / q.map->rails();
  return q.map->hosts() * kernelMicros(q, bytes / q.map->hosts()) + busMicros(onRail) +
         kHandOverMicros + railMicros(q, q.kind, onRail) + busMicros(bytes / q.size);
}

}  // namespace

namespace algorithms {

Algorithm reduceScatterGpuHostsRails() {
  return {.name = "rails",
          .kinds = {CollectiveKind::ReduceScatter},
          .run = reduceScatterOnRails,
          .micros = reduceScatterOnRailsMicros,
          .whyNot = whyNotEven,
          .sumsPartially = true};
}

}  // namespace algorithms

}  // namespace ctran
