#include "ctran/plan/synthesis/flow.h"

#include <algorithm>

namespace ctran::plan {

void Flow::add(int from, int to, int64_t capacity) {
  edgesOf_[from].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, capacity});
  edgesOf_[to].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0});
}

int64_t Flow::run(int source, int sink, int64_t enough) {
  int64_t total = 0;
  while (total < enough && findLevels(source, sink)) {
    next_.assign(edgesOf_.size(), 0);
    while (total < enough) {
      const int64_t pushed = push(source, sink, enough - total);
      if (pushed == 0) break;
      total += pushed;
    }
  }
  return total;
}

bool Flow::findLevels(int source, int sink) {
  level_.assign(edgesOf_.size(), -1);
  level_[source] = 0;
  std::vector<int> queue{source};
  for (size_t i = 0; i < queue.size(); ++i) {
    for (const int e : edgesOf_[queue[i]]) {
      const Edge& edge = edges_[e];
      if (edge.left == 0 || level_[edge.to] >= 0) continue;
      level_[edge.to] = level_[queue[i]] + 1;
      queue.push_back(edge.to);
    }
  }
  return level_[sink] >= 0;
}

int64_t Flow::push(int node, int sink, int64_t atMost) {
  if (node == sink) return atMost;
  for (size_t& i = next_[node]; i < edgesOf_[node].size(); ++i) {
    const int e = edgesOf_[node][i];
    const Edge edge = edges_[e];
    if (edge.left == 0 || level_[edge.to] != level_[node] + 1) continue;
    const int64_t pushed = push(edge.to, sink, std::min(atMost, edge.left));
    if (pushed == 0) continue;
    edges_[e].left -= pushed;
    edges_[e ^ 1].left += pushed;
    return pushed;
  }
  return 0;
}

}  // namespace ctran::plan
