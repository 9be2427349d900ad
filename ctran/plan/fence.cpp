#include "ctran/plan/fence.h"

#include <algorithm>
#include <set>
#include <utility>

namespace ctran::plan {
namespace {

/// The other ranks to which a lane puts.
std::set<int> targetsOf(const Lane& lane, int rank) {
  std::set<int> ranks;
  for (const Step& step : lane) {
    for (const Place& place : step.to) ranks.insert(place.rank);
  }
  ranks.erase(rank);
  return ranks;
}

}  // namespace

/// The first lane of a rank speaks with those of other ranks when all lanes of its rank have told
/// it. A lane that puts to another rank tells that one, too, behind what it has put.
Plan fenced(const Plan& plan) {
  Plan result = plan;
  for (auto& lanes : result.programs) lanes.resize(std::max<size_t>(1, lanes.size()));
  const auto addSignal = [&](LaneId from, Step& signals, LaneId to, Step& waits) {
    const int channel = static_cast<int>(result.channels.size());
    result.channels.push_back({from, to, 0});
    signals.signals.push_back(channel);
    waits.waits.push_back({channel, 1});
  };
  std::vector<Step> tell(plan.ranks), hear(plan.ranks);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    for (int other = 0; other < plan.ranks; ++other) {
      if (other != rank) addSignal({rank, 0}, tell[rank], {other, 0}, hear[other]);
    }
    auto& lanes = result.programs[rank];
    for (int lane = 1; lane < static_cast<int>(lanes.size()); ++lane) {
      const LaneId id{rank, lane};
      Step end;
      for (const int other : targetsOf(lanes[lane], rank)) {
        addSignal(id, end, {other, 0}, hear[other]);
      }
      addSignal(id, end, {rank, 0}, tell[rank]);
      lanes[lane].push_back(std::move(end));
    }
  }
  for (int rank = 0; rank < plan.ranks; ++rank) {
    for (Step* step : {&tell[rank], &hear[rank]}) {
      if (step->waits.empty() && step->signals.empty()) continue;
      result.programs[rank][0].push_back(std::move(*step));
    }
  }
  return result;
}

}  // namespace ctran::plan
