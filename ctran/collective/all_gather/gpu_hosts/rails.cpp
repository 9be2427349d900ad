#include "ctran/collective/gpu/hosts_call.h"
#include "ctran/collective/gpu/hosts_cost.h"
#include "ctran/collective/gpu/strips.h"

namespace ctran {
namespace {

/// All-gather of each rail by the host, meanwhile one inside the domain by a kernel; then one
/// inside for each other domain, of what came from there. In strips.
void allGatherOnRails(GpuHostsCall& call, const Collective& c) {
  const HostMap& domains = call.domains;
  const auto count = static_cast<size_t>(domains.hosts());
  const auto local = static_cast<int>(domains.local().size());
  const Strips strips(c.count, sizeOf(c.type), call.stepBytes / count);
  const size_t slotBytes = 2 * call.stepBytes;  // what goes, and what comes
  const Staging slots = call.stageOnRail(2 * slotBytes);
  const auto inside = [&](size_t k, int domain, const std::byte* input) {
    Collective step;
    step.kind = c.kind;
    step.type = c.type;
    step.count = strips.countOf(k);
    step.input = input;
    for (int place = 0; place < local; ++place) {
      step.outputs.push_back(strips.part(k, c.outputBlock(rankAt(call, domain, place))));
    }
    call.inDomain(step);
  };
  std::vector<size_t> started(strips.strips);
  for (size_t k = 0; k <= strips.strips; ++k) {
    if (k < strips.strips) {
      const Staging out = slots + k % 2 * slotBytes;
      const Block own = strips.part(k, {const_cast<std::byte*>(c.input), c.count});
      call.copy(out.device, own.data, own.count * strips.element);
      Collective between;
      between.kind = c.kind;
      between.type = c.type;
      between.count = own.count;
      between.onRail = true;
      between.input = out.host;
      between.output = (out + call.stepBytes).host;
      started[k] = call.start({between});
      inside(k, domains.host(), own.data);
    }
    if (k > 0) {
      const Staging in = slots + (k - 1) % 2 * slotBytes + call.stepBytes;
      const size_t bytes = strips.countOf(k - 1) * strips.element;
      call.await(started[k - 1]);
      for (int d = 0; d < domains.hosts(); ++d) {
        if (d == domains.host()) continue;
        const Block block = strips.part(k - 1, c.outputBlock(rankAt(call, d, domains.index())));
        call.copy(block.data, (in + static_cast<size_t>(d) * bytes).device, bytes);
        inside(k - 1, d, block.data);
      }
    }
  }
}

double allGatherOnRailsMicros(const AlgorithmQuery& q) {
  const auto bytes = static_cast<double>(q.bytes);
  return q.map->hosts() * kernelMicros(q, bytes * q.map->rails()) + stagingMicros(q, bytes) +
         kHandOverMicros + railMicros(q, q.kind, bytes) + stagingMicros(q, bytes * q.map->hosts());
}

}  // namespace

namespace algorithms {

Algorithm allGatherGpuHostsRails() {
  return {.name = "rails",
          .kinds = {CollectiveKind::AllGather},
          .run = allGatherOnRails,
          .micros = allGatherOnRailsMicros,
          .whyNot = whyNotEven};
}

}  // namespace algorithms

}  // namespace ctran
