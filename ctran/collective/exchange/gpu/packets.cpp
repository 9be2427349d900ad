#include "ctran/collective/exchange/packets.cuh"

#include <algorithm>

#include "ctran/collective/gpu/messages.h"

namespace ctran {
namespace {

/// Data travels in packets, each with a flag. Every rank sends what it has for each other one
/// straight into the slots of that one's memory, which takes it from there: 4/3 of the bytes over
/// the links, one step.
void exchangePackets(GpuContext& gpu, const Collective& c, const GpuTarget& target) {
  const GpuMessages m =
      c.kind == CollectiveKind::Barrier ? GpuMessages() : GpuMessages::of(c, gpu.rank, gpu.size);
  device::PacketExchangeArguments a{};
  a.team = gpu.team;
  size_t most = 0;
  for (uint32_t r = 0; r < gpu.size; ++r) {
    a.from[r] = m.from[r];
    a.to[r] = m.to[r];
    a.sendBytes[r] = m.sendBytes[r];
    a.receiveBytes[r] = m.receiveBytes[r];
    a.sendPackets[r] = device::messagePackets(m.sendBytes[r]);
    a.receivePackets[r] = device::messagePackets(m.receiveBytes[r]);
    most = std::max({most, m.sendBytes[r], m.receiveBytes[r]});
    if (r == gpu.rank) continue;
    a.mostSent = std::max(a.mostSent, a.sendPackets[r]);
    a.mostReceived = std::max(a.mostReceived, a.receivePackets[r]);
  }
  gpu.run(gpu.moving.packets, gpu.shapeFor(ceilDiv(most, kPacketData), 48, target), &a, target);
}

SizeRange exchangePacketsSizes(const AlgorithmQuery& query) {
  return {query.largest, 0, kPacketLimit};
}

std::string whyNotExchangePackets(const AlgorithmQuery& query) {
  if (query.size == 1) return "there is one rank";
  const size_t most = query.gpus->slotBytes / 16 * kPacketData;
  if (query.largest <= most) return {};
  return "its slots hold blocks of up to " + std::to_string(most) + " bytes";
}

}  // namespace

namespace algorithms {

Algorithm exchangeGpuPackets() {
  using Kind = CollectiveKind;
  return {.name = "packets",
          .kinds = {Kind::Barrier, Kind::Broadcast, Kind::AllGather, Kind::AllGatherV,
                    Kind::Scatter, Kind::Gather, Kind::AllToAll},
          .run = exchangePackets,
          .whyNot = whyNotExchangePackets,
          .sizes = exchangePacketsSizes};
}

}  // namespace algorithms

}  // namespace ctran
