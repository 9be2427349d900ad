#include "ctran/topology/paths.h"

#include <algorithm>
#include <set>

namespace ctran {
namespace {

/// Links `members`, of which the first is the root, as a binomial tree.
void linkBinomial(const std::vector<int>& members, std::vector<int>& parents) {
  for (size_t i = 1; i < members.size(); ++i) {
    size_t bit = 1;
    while (bit * 2 <= i) bit *= 2;
    parents[members[i]] = members[i - bit];
  }
}

/// Groups of ranks that are at most `limit` apart from the group's first.
std::vector<std::vector<int>> groupsOf(const std::vector<int>& ranks, int limit,
                                       const RankDistance& distance) {
  std::vector<std::vector<int>> groups;
  for (const int rank : ranks) {
    const auto home = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return distance(group[0], rank) <= limit;
    });
    home == groups.end() ? groups.push_back({rank}) : home->push_back(rank);
  }
  return groups;
}

/// `ranks` begins with the root. `levels` are the distances that occur, the longest last.
void link(const std::vector<int>& ranks, std::vector<int> levels, const RankDistance& distance,
          std::vector<int>& parents) {
  if (levels.size() <= 1) return linkBinomial(ranks, parents);
  levels.pop_back();
  const auto groups = groupsOf(ranks, levels.back(), distance);
  std::vector<int> leaders;
  for (const auto& group : groups) {
    leaders.push_back(group[0]);
    link(group, levels, distance, parents);
  }
  linkBinomial(leaders, parents);
}

}  // namespace

std::vector<int> ringOrder(int size, const RankDistance& distance) {
  std::vector<int> order;
  if (size <= 0) return order;
  std::vector<bool> used(size, false);
  order.push_back(0);
  used[0] = true;
  while (static_cast<int>(order.size()) < size) {
    int nearest = -1;
    for (int r = 0; r < size; ++r) {
      if (used[r]) continue;
      if (nearest < 0 || distance(order.back(), r) < distance(order.back(), nearest)) nearest = r;
    }
    used[nearest] = true;
    order.push_back(nearest);
  }
  // Exchange two edges of the ring, which turns the way between them around.
  bool shorter = size <= 512;
  while (shorter) {
    shorter = false;
    for (int i = 0; i + 2 < size; ++i) {
      for (int j = i + 2; j < size; ++j) {
        const int a = order[i], b = order[i + 1], c = order[j], d = order[(j + 1) % size];
        if (d == a) continue;
        if (distance(a, c) + distance(b, d) >= distance(a, b) + distance(c, d)) continue;
        std::reverse(order.begin() + i + 1, order.begin() + j + 1);
        shorter = true;
      }
    }
  }
  return order;
}

std::vector<int> treeParents(int size, int root, const RankDistance& distance) {
  std::vector<int> parents(size, -1);
  std::vector<int> ranks{root};
  for (int r = 0; r < size; ++r) {
    if (r != root) ranks.push_back(r);
  }
  std::set<int> levels;
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) levels.insert(distance(a, b));
  }
  link(ranks, {levels.begin(), levels.end()}, distance, parents);
  return parents;
}

}  // namespace ctran
