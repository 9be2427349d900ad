#include "ctran/collective/gpu/messages.h"

namespace ctran {
namespace {

/// Every rank sends what it has for each other one, in steps on flows: into room of the receiver,
/// which says when it may be written again, or straight to where it belongs if that is symmetric
/// memory, and then there is no copy at all. The bytes of the collective over the links, one step.
void exchangeDirectly(GpuContext& gpu, const Collective& c, const GpuTarget& target) {
  if (c.kind == CollectiveKind::Barrier) return;  // of one rank
  exchangeOnFlows(gpu, GpuMessages::of(c, gpu.rank, gpu.size), target);
}

std::string whyNotDirectly(const AlgorithmQuery& query) {
  if (query.kind != CollectiveKind::Barrier || query.size == 1) return {};
  return "a barrier has no data that could be waited for";
}

}  // namespace

namespace algorithms {

Algorithm exchangeGpuDirect() {
  using Kind = CollectiveKind;
  return {.name = "direct",
          .kinds = {Kind::Barrier, Kind::Broadcast, Kind::AllGather, Kind::AllGatherV,
                    Kind::Scatter, Kind::Gather, Kind::AllToAll, Kind::AllToAllV},
          .run = exchangeDirectly,
          .whyNot = whyNotDirectly,
          .sizes = [](const AlgorithmQuery& query) { return SizeRange{query.largest}; }};
}

}  // namespace algorithms

}  // namespace ctran
