#include "ctran/collective/gpu/hosts_cost.h"

#include <algorithm>

#include "ctran/collective/hosts_cost.h"
#include "ctran/collective/registry.h"
#include "ctran/topology/host_map.h"

namespace ctran {
namespace {

constexpr double kBusBytesPerMicro = 20e3;  // PCIe of the fourth generation, less what it wastes
constexpr double kKernelBytesPerMicro = 150e3;   // NVLink
constexpr double kMemoryBytesPerMicro = 1000e3;  // from a GPU's memory into the same
constexpr double kLaunchMicros = 5;

}  // namespace

double busMicros(double bytes) { return kLaunchMicros + bytes / kBusBytesPerMicro; }

double stagingMicros(const AlgorithmQuery& q, double bytes) {
  return q.reachesGpus ? kLaunchMicros + bytes / kMemoryBytesPerMicro : busMicros(bytes);
}

double kernelMicros(const AlgorithmQuery& q, double bytes) {
  return GroupCost(q).ranks > 1 ? kLaunchMicros + bytes / kKernelBytesPerMicro : kLaunchMicros;
}

double networkMicros(const AlgorithmQuery& q) {
  AlgorithmQuery onHost = q;
  onHost.gpus = nullptr;
  double network = 0;
  cheapestAlgorithm(AlgorithmPlace::Network, onHost, false, &network);
  const auto groups = algorithmsOf(AlgorithmPlace::Hosts, q.kind);
  if (!q.map->isShared() || groups.empty()) return network;
  for (const Algorithm* group : groups) {
    if (group->sumsPartially && !q.partialSums) continue;
    if (group->whyNot(onHost).empty()) network = std::min(network, group->micros(onHost));
  }
  return network;
}

double railMicros(const AlgorithmQuery& q, CollectiveKind kind, double bytes) {
  const GroupCost cost(q);
  return cost.between(kind, bytes, cost.rails);
}

std::string whyNotEven(const AlgorithmQuery& q) {
  return q.map->isEven() ? "" : "not every domain has as many ranks (" + q.map->shape() + ")";
}

}  // namespace ctran
