#pragma once

#include <vector>

#include "ctran/plan/library.h"

namespace ctran::plan {

inline std::vector<int> everybody(int ranks) {
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) all.push_back(r);
  return all;
}
/// The ranks of host `host`, of `g` ranks.
inline std::vector<int> hostTeam(int host, int g) {
  std::vector<int> team;
  for (int l = 0; l < g; ++l) team.push_back(host * g + l);
  return team;
}
/// The ranks that are number `local` on their host.
inline std::vector<int> acrossHosts(int local, int g, int hosts) {
  std::vector<int> team;
  for (int h = 0; h < hosts; ++h) team.push_back(h * g + local);
  return team;
}

Plan ringAllReduce(const Recipe& recipe, bool bidirectional);
Plan oneShotAllReduce(const Recipe& recipe);
Plan twoShotAllReduce(const Recipe& recipe);
Plan oneShotPullAllReduce(const Recipe& recipe);
Plan twoShotPullAllReduce(const Recipe& recipe);
Plan recursiveDoublingAllReduce(const Recipe& recipe);
Plan halvingDoublingAllReduce(const Recipe& recipe);
Plan hierarchicalAllReduce(const Recipe& recipe);

Plan ringAllGather(const Recipe& recipe, bool bidirectional);
Plan directAllGather(const Recipe& recipe);
Plan directPullAllGather(const Recipe& recipe);
Plan recursiveDoublingAllGather(const Recipe& recipe);
Plan bruckAllGather(const Recipe& recipe);
Plan hierarchicalAllGather(const Recipe& recipe);

Plan ringReduceScatter(const Recipe& recipe, bool bidirectional);
Plan directReduceScatter(const Recipe& recipe);
Plan directPullReduceScatter(const Recipe& recipe);
Plan recursiveHalvingReduceScatter(const Recipe& recipe);
Plan hierarchicalReduceScatter(const Recipe& recipe);

Plan directAllToAll(const Recipe& recipe);
Plan directPullAllToAll(const Recipe& recipe);
Plan bruckAllToAll(const Recipe& recipe);
Plan hierarchicalAllToAll(const Recipe& recipe);

Plan directBroadcast(const Recipe& recipe);
Plan directPullBroadcast(const Recipe& recipe);
Plan chainBroadcast(const Recipe& recipe);
Plan binomialBroadcast(const Recipe& recipe);
Plan scatterGatherBroadcast(const Recipe& recipe);
Plan hierarchicalBroadcast(const Recipe& recipe);

}  // namespace ctran::plan
