#include "ctran/plan/synthesis/synthesize.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "ctran/base/error.h"
#include "ctran/plan/synthesis/emitter.h"

namespace ctran::plan {
namespace {

Topology reversed(Topology topology) {
  for (Topology::Link& link : topology.links) std::swap(link.from, link.to);
  return topology;
}

void addReversed(Routes& routes, const Routes& others) {
  for (const auto& [ends, ways] : others) {
    auto& mine = routes[{ends.second, ends.first}];
    for (Route way : ways) {
      std::reverse(way.nodes.begin(), way.nodes.end());
      const auto known = std::find_if(mine.begin(), mine.end(),
                                      [&](const Route& other) { return other.nodes == way.nodes; });
      if (known == mine.end()) {
        mine.push_back(std::move(way));
      } else {
        known->share += way.share;
      }
    }
  }
}

Plan alone(CollectiveKind kind) {
  Builder b("synthesized", kind, 1, 1);
  b.copy({0, 0}, b.output(0, 0), b.input(0, 0));
  return b.finish();
}

}  // namespace

Synthesis synthesize(const Topology& topology, CollectiveKind kind, int mostShares, int depth) {
  const bool reduces = kind != CollectiveKind::AllGather;
  const bool gathers = kind != CollectiveKind::ReduceScatter;
  if (reduces && gathers && kind != CollectiveKind::AllReduce) {
    throw Error(ErrorKind::InvalidArgument,
                "synthesis: there is none for " + std::string(nameOf(kind)) +
                    ", only for all_gather, reduce_scatter, all_reduce");
  }
  Synthesis made;
  made.phases = reduces && gathers ? 2 : 1;
  if (topology.ranks == 1) {
    made.plan = alone(kind);
    made.bound = made.rate = {INT64_MAX, 1};
    return made;
  }
  // Data is reduced against the direction of trees.
  const Topology back = reversed(topology);
  Forest up, down;
  if (reduces) up = packTrees(back, mostShares);
  if (gathers)
    down = back.capacities() == topology.capacities() && reduces ? up
                                                                 : packTrees(topology, mostShares);
  const Forest& any = gathers ? down : up;
  made.bound = any.bound;
  made.rate = reduces && up.rate.value() < any.rate.value() ? up.rate : any.rate;
  if (gathers) made.routes = down.routes;
  if (reduces) addReversed(made.routes, up.routes);

  const int n = topology.ranks;
  const int chunks = static_cast<int>(std::lcm(reduces ? up.shares : 1, gathers ? down.shares : 1));
  const bool both = made.phases == 2;
  Builder b("synthesized", kind, n, both ? n * chunks : chunks);
  b.setDepth(depth);
  Emitter emitter(b);
  const auto whole = [chunks](const Branches& tree) { return tree.root * chunks + tree.chunk; };
  std::vector<Branches> ups, downs;
  if (reduces) ups = branchesOf(up, n, chunks);
  if (gathers) downs = branchesOf(down, n, chunks);
  if (reduces) {
    emitter.reduce(
        ups, [&](int r, const Branches& tree) { return b.input(r, whole(tree)); },
        [&](int r, const Branches& tree) { return b.output(r, both ? whole(tree) : tree.chunk); },
        downs);
  }
  if (gathers) {
    emitter.gather(
        downs,
        [&](int r, const Branches& tree) {
          return both ? b.output(r, whole(tree)) : b.input(r, tree.chunk);
        },
        [&](int r, const Branches& tree) { return b.output(r, whole(tree)); }, both);
  }
  made.plan = b.finish();
  emitter.setCredits(made.plan);
  return made;
}

double linkSeconds(const Plan& plan, const Topology& topology, const Routes& routes) {
  std::map<std::pair<int, int>, int64_t> chunks;  // from rank to rank
  for (int r = 0; r < plan.ranks; ++r) {
    for (const Lane& lane : plan.programs[r]) {
      for (const Step& step : lane) {
        for (const Place& place : step.from) {
          if (place.rank != r) chunks[{place.rank, r}] += step.count;
        }
        for (const Place& place : step.to) {
          if (place.rank != r) chunks[{r, place.rank}] += step.count;
        }
      }
    }
  }
  const auto capacity = topology.capacities();
  std::map<std::pair<int, int>, double> load;
  for (const auto& [ends, count] : chunks) {
    const auto given = routes.find(ends);
    const std::vector<Route> ways =
        given != routes.end()
            ? given->second
            : std::vector<Route>{{shortestRoute(topology, ends.first, ends.second)}};
    int64_t shares = 0;
    for (const Route& way : ways) shares += way.share;
    for (const Route& way : ways) {
      for (size_t i = 1; i < way.nodes.size(); ++i) {
        load[{way.nodes[i - 1], way.nodes[i]}] +=
            static_cast<double>(count * way.share) / static_cast<double>(shares);
      }
    }
  }
  double slowest = 0;
  for (const auto& [link, bytes] : load) {
    slowest = std::max(slowest, bytes / plan.chunks /
                                    (static_cast<double>(capacity[link.first][link.second]) * 1e6));
  }
  return slowest;
}

}  // namespace ctran::plan
