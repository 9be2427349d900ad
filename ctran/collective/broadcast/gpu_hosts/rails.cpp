#include "ctran/collective/gpu/hosts_call.h"
#include "ctran/collective/gpu/hosts_cost.h"
#include "ctran/collective/gpu/shares.h"

namespace ctran {
namespace {

/// The root's domain has it from a kernel; then each of its ranks with a rail broadcasts a share of
/// it to its rail, and the other domains gather the shares. In pieces, as an all-reduce on rails.
void broadcastOnRails(GpuHostsCall& call, const Collective& c) {
  const HostMap& domains = call.domains;
  const size_t element = sizeOf(c.type);
  const Shares shares(call, c.count, element);
  const Staging slots = call.stageOnRail(2 * call.stepBytes);
  const int from = domains.hostOf(c.root);
  const bool isSource = from == domains.host();
  if (isSource) {
    Collective inside = c;
    inside.root = domains.indexOf(c.root);
    call.inDomain(inside);
  }
  std::vector<size_t> started(shares.pieces);
  for (size_t k = 0; k <= shares.pieces; ++k) {
    if (k < shares.pieces) {
      const Block own = shares.own(k, c.output);
      const Staging slot = slots + k % 2 * call.stepBytes;
      if (isSource && call.onRail()) call.copy(slot.device, own.data, own.count * element);
      Collective between = shares.onRail(c, k);
      between.root = from;
      between.output = slot.host;
      started[k] = call.start({between});
    }
    if (k > 0) {
      const Block own = shares.own(k - 1, c.output);
      call.await(started[k - 1]);
      if (isSource) continue;
      call.copy(own.data, (slots + (k - 1) % 2 * call.stepBytes).device, own.count * element);
      call.inDomain(shares.gather(k - 1, c));
    }
  }
}

double broadcastOnRailsMicros(const AlgorithmQuery& q) {
  const auto bytes = static_cast<double>(q.bytes);
  const double share = bytes / q.map->rails();
  return 2 * kernelMicros(q, bytes) + 2 * stagingMicros(q, share) + kHandOverMicros +
         railMicros(q, q.kind, share);
}

}  // namespace

namespace algorithms {

Algorithm broadcastGpuHostsRails() {
  return {.name = "rails",
          .kinds = {CollectiveKind::Broadcast},
          .run = broadcastOnRails,
          .micros = broadcastOnRailsMicros};
}

}  // namespace algorithms

}  // namespace ctran
