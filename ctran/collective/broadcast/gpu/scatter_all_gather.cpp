#include <algorithm>

#include "ctran/collective/exchange/flows.cuh"
#include "ctran/collective/gpu/context.h"

namespace ctran {
namespace {

/// The root sends each other rank another part, and that sends it on to the rest while it comes:
/// the root's link carries the data once.
void broadcastInParts(GpuContext& gpu, const Collective& c, const GpuTarget& target) {
  const size_t bytes = c.blockBytes();
  const size_t share = ceilDiv(ceilDiv(bytes, gpu.size - 1), 16) * 16;
  const uint32_t root = static_cast<uint32_t>(c.root);
  device::ExchangeArguments a{};
  a.team = gpu.team;
  uint32_t flows = 0;
  for (uint32_t r = 0; r < gpu.size; ++r) {
    if (r == root) continue;
    const size_t begin = std::min(bytes, (r < root ? r : r - 1) * share);
    const size_t length = std::min(bytes - begin, share);
    if (length == 0) continue;
    char* part = bytesAt(c.output) + begin;
    device::Transfer transfer{part, part, length, device::kReceive, r, 0, 0, 0, 0, 0, 0, 0, {}};
    if (gpu.rank == root) transfer.kind = device::kSend;
    if (gpu.rank == r) {
      transfer.kind = device::kRelay;
      transfer.peer = root;
    }
    gpu.deal(transfer, gpu.flowsOfPair(target));
    a.transfers[a.count++] = transfer;
    flows += transfer.flows;
  }
  gpu.run(gpu.moving.flows, gpu.shapeOfFlows(flows, target), &a, target);
}

SizeRange broadcastInPartsSizes(const AlgorithmQuery& query) { return {query.bytes, 1 << 20}; }

std::string whyNotInParts(const AlgorithmQuery& query) {
  return query.size > 2 ? "" : "two ranks have nobody to send parts on to";
}

}  // namespace

namespace algorithms {

Algorithm broadcastGpuScatterAllGather() {
  return {.name = "scatter_all_gather",
          .kinds = {CollectiveKind::Broadcast},
          .run = broadcastInParts,
          .whyNot = whyNotInParts,
          .sizes = broadcastInPartsSizes};
}

}  // namespace algorithms

}  // namespace ctran
