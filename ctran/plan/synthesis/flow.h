#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ctran::plan {

/// The largest flow from a node to another (Dinic's algorithm).
class Flow {
 public:
  static constexpr int64_t kUnbounded = INT64_MAX / 4;

  explicit Flow(int nodes) : edgesOf_(nodes) {}

  void add(int from, int to, int64_t capacity);

  /// Not more than `enough`. Once.
  int64_t run(int source, int sink, int64_t enough = kUnbounded);

  /// After `run`, unless it stopped at `enough`: whether the node is on the source's side of the
  /// cut that keeps the flow from being larger.
  bool isOnSourceSide(int node) const { return level_[node] >= 0; }

 private:
  struct Edge {
    int to;
    int64_t left;  ///< capacity that is not used; edges i and i ^ 1 are each other's reverse
  };
  bool findLevels(int source, int sink);
  int64_t push(int node, int sink, int64_t atMost);

  std::vector<Edge> edges_;
  std::vector<std::vector<int>> edgesOf_;
  std::vector<int> level_;
  std::vector<size_t> next_;
};

}  // namespace ctran::plan
