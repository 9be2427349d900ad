#include "ctran/collective/gpu/hosts_call.h"
#include "ctran/collective/gpu/hosts_cost.h"
#include "ctran/collective/gpu/strips.h"

namespace ctran {
namespace {

/// Each rank sends what it has for a domain to the rank there that shares its rail, by the host,
/// and that one deals it out inside, by a kernel. What stays inside is dealt out meanwhile. Over
/// the network go as many bytes as if each rank sent to each, in fewer and larger messages. In
/// strips.
void allToAllOnRails(GpuHostsCall& call, const Collective& c) {
  const HostMap& domains = call.domains;
  const auto local = static_cast<int>(domains.local().size());
  const Strips strips(c.count, sizeOf(c.type),
                      call.stepBytes / static_cast<size_t>(domains.size()));
  const size_t slotBytes = 2 * call.stepBytes;  // what goes, and what comes
  const Staging slots = call.stageOnRail(2 * slotBytes);
  /// To the ranks of this domain, from those of that one; `inputs`: a block for each of this one.
  const auto inside = [&](size_t k, int domain, std::vector<Block> inputs) {
    Collective step;
    step.kind = CollectiveKind::AllToAllV;
    step.type = c.type;
    step.inputs = std::move(inputs);
    for (int place = 0; place < local; ++place) {
      step.outputs.push_back(strips.part(k, c.outputBlock(rankAt(call, domain, place))));
    }
    call.inDomain(step);
  };
  const auto inputOf = [&](size_t k, int domain, int place) {
    return strips.part(k, c.inputBlock(rankAt(call, domain, place)));
  };
  std::vector<size_t> started(strips.strips);
  for (size_t k = 0; k <= strips.strips; ++k) {
    if (k < strips.strips) {
      const Staging out = slots + k % 2 * slotBytes;
      const size_t bytes = strips.countOf(k) * strips.element;
      std::vector<Block> own;
      for (int d = 0; d < domains.hosts(); ++d) {
        for (int place = 0; place < local; ++place) {
          const Block block = inputOf(k, d, place);
          if (d == domains.host()) {
            own.push_back(block);
          } else {
            call.copy((out + static_cast<size_t>(d * local + place) * bytes).device, block.data,
                      bytes);
          }
        }
      }
      Collective between;
      between.kind = c.kind;
      between.type = c.type;
      between.count = strips.countOf(k) * static_cast<size_t>(local);
      between.onRail = true;
      between.input = out.host;
      between.output = (out + call.stepBytes).host;
      started[k] = call.start({between});
      inside(k, domains.host(), std::move(own));
    }
    if (k > 0) {
      const Staging in = slots + (k - 1) % 2 * slotBytes + call.stepBytes;
      const size_t bytes = strips.countOf(k - 1) * strips.element;
      call.await(started[k - 1]);
      for (int d = 0; d < domains.hosts(); ++d) {
        if (d == domains.host()) continue;
        std::vector<Block> came;
        for (int place = 0; place < local; ++place) {
          came.push_back({(in + static_cast<size_t>(d * local + place) * bytes).device,
                          strips.countOf(k - 1)});
        }
        inside(k - 1, d, std::move(came));
      }
    }
  }
}

double allToAllOnRailsMicros(const AlgorithmQuery& q) {
  const auto bytes = static_cast<double>(q.bytes);
  return q.map->hosts() * kernelMicros(q, bytes / q.map->hosts()) + stagingMicros(q, bytes) +
         kHandOverMicros + railMicros(q, q.kind, bytes) + stagingMicros(q, bytes);
}

}  // namespace

namespace algorithms {

Algorithm allToAllGpuHostsRails() {
  return {.name = "rails",
          .kinds = {CollectiveKind::AllToAll},
          .run = allToAllOnRails,
          .micros = allToAllOnRailsMicros,
          .whyNot = whyNotEven};
}

}  // namespace algorithms

}  // namespace ctran
