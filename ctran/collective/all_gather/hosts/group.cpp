#include "ctran/collective/algorithm.h"
#include "ctran/collective/hosts_context.h"
#include "ctran/collective/hosts_cost.h"
#include "ctran/collective/preference.h"

namespace ctran {
namespace {

/// The blocks of a host are carried by the ranks that have a rail, in turns: in turn t the rank of
/// place i carries the block of place t * rails + i.
class Turns {
 public:
  explicit Turns(const HostMap& map) : map_(map) {}
  uint32_t of(int host) const {
    const auto ranks = static_cast<int>(map_.ranks(host).size());
    return static_cast<uint32_t>((ranks + map_.rails() - 1) / map_.rails());
  }
  /// Whose block; -1 if there is none.
  int rank(int host, uint32_t turn, int place) const {
    const size_t index = turn * map_.rails() + place;
    if (place >= map_.rails() || index >= map_.ranks(host).size()) return -1;
    return map_.ranks(host)[index];
  }

 private:
  const HostMap& map_;
};

/// For all_gather and all_gather_v. Inside each host; then every block goes once to each other
/// host, to the rank of its owner's place there, which shares it with its neighbours as soon as it
/// has come. A host receives the others' blocks once, whatever number of ranks it has.
Task allGatherGroup(HostsContext& hosts, const Collective& c) {
  const HostMap& map = hosts.map;
  const Turns turns(map);
  const size_t element = sizeOf(c.type);
  const int here = map.host(), count = map.hosts();
  const auto ranks = static_cast<int>(map.local().size());
  std::vector<Arrival> arrivals;
  std::vector<Dispatch> dispatches;
  NetContext* const rail = hosts.onRail() ? &hosts.rail() : nullptr;
  if (rail != nullptr) rail->prepare(hosts.all.size);
  for (int step = 1; rail != nullptr && step < count; ++step) {
    const int from = rail->before(step);
    for (uint32_t t = 0; t < turns.of(from); ++t) {
      const int owner = turns.rank(from, t, map.index());
      const Block block = owner < 0 ? Block{} : c.outputBlock(owner);
      arrivals.push_back(rail->receive(from, t, block.data, block.count * element));
    }
  }
  for (int step = 1; rail != nullptr && step < count; ++step) {
    dispatches.push_back(rail->send(rail->after(step), 0, c.input, c.blockBytes()));
  }

  Collective inside = c;
  inside.kind = CollectiveKind::AllGatherV;
  inside.outputs.resize(ranks);
  for (int r = 0; r < ranks; ++r) inside.outputs[r] = c.outputBlock(map.local()[r]);
  {
    Task task = hosts.local(inside);
    co_await task;
  }
  for (uint32_t t = 1; rail != nullptr && t < turns.of(here); ++t) {
    const int owner = turns.rank(here, t, map.index());
    if (owner < 0) continue;
    const Block block = c.outputBlock(owner);
    for (int step = 1; step < count; ++step) {
      dispatches.push_back(rail->send(rail->after(step), t, block.data, block.count * element));
    }
  }

  size_t arrived = 0;
  for (int step = 1; step < count; ++step) {
    const int from = (here - step + count) % count;
    for (uint32_t t = 0; t < turns.of(from); ++t) {
      if (rail != nullptr) co_await arrivals[arrived++];
      for (int r = 0; r < ranks; ++r) {
        const int owner = turns.rank(from, t, r);
        inside.outputs[r] = owner < 0 ? Block{} : c.outputBlock(owner);
      }
      inside.input = inside.outputs[map.index()].data;
      inside.count = inside.outputs[map.index()].count;
      Task task = hosts.local(inside);
      co_await task;
    }
  }
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

double allGatherGroupMicros(const AlgorithmQuery& q) {
  const GroupCost cost(q);
  return cost.inside(q.kind, cost.bytes) + cost.between(q.kind, cost.bytes, cost.ranks) +
         (cost.hosts - 1) * cost.inside(q.kind, cost.bytes);
}

}  // namespace

namespace algorithms {

Algorithm allGatherHostsGroup() {
  return {.name = kGroup,
          .kinds = {CollectiveKind::AllGather, CollectiveKind::AllGatherV},
          .run = allGatherGroup,
          .micros = allGatherGroupMicros};
}

}  // namespace algorithms

}  // namespace ctran
