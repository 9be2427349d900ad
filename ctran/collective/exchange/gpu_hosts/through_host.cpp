#include "ctran/collective/gpu/hosts_call.h"
#include "ctran/collective/gpu/hosts_cost.h"

namespace ctran {
namespace {

/// The network does it from and to memory of the host, as it does for tensors of the CPU, with the
/// same bits. Everything passes the bus to the host twice, and every rank is in the network.
void throughHost(GpuHostsCall& call, const Collective& c) { passThroughHost(call, {c}); }

double throughHostMicros(const AlgorithmQuery& q) {
  const double all = q.all(), own = static_cast<double>(q.bytes);
  const bool gathers = q.kind == CollectiveKind::AllGather || q.kind == CollectiveKind::AllGatherV;
  return networkMicros(q) + busMicros(own) + busMicros(gathers ? all : own) + kHandOverMicros;
}

}  // namespace

namespace algorithms {

Algorithm exchangeGpuHostsThroughHost() {
  using Kind = CollectiveKind;
  return {.name = "through_host",
          .kinds = {Kind::Barrier, Kind::Broadcast, Kind::AllReduce, Kind::Reduce, Kind::AllGather,
                    Kind::AllGatherV, Kind::ReduceScatter, Kind::ReduceScatterV, Kind::Scatter,
                    Kind::Gather, Kind::AllToAll, Kind::AllToAllV},
          .run = throughHost,
          .micros = throughHostMicros};
}

}  // namespace algorithms

}  // namespace ctran
