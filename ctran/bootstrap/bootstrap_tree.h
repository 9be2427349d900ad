#pragma once

#include <algorithm>
#include <cstdint>

namespace ctran {

/// The tree over which ranks find each other, with rank 0 as its root: each rank collects what its
/// children know, and sends it to its parent. Among up to 64 ranks all but rank 0 are its children;
/// more ranks make more levels.
struct BootstrapTree {
  static constexpr int kChildren = 63;
  static constexpr int kMostInOneLevel = kChildren + 1;

  int rank = 0;
  int size = 1;

  static constexpr int parentOf(int rank) { return (rank - 1) / kChildren; }

  bool isRoot() const { return rank == 0; }
  int parent() const { return parentOf(rank); }
  int firstChild() const {
    return static_cast<int>(std::min<int64_t>(int64_t{rank} * kChildren + 1, size));
  }
  int children() const { return std::min(size - firstChild(), kChildren); }
  BootstrapTree at(int other) const { return {other, size}; }

  /// Returns whether that rank is this one, or below it.
  bool isAbove(int other) const {
    while (other > rank) other = parentOf(other);
    return other == rank;
  }
  /// Returns the number of ranks for which `isAbove` is true.
  int ranks() const {
    int64_t count = 0, first = rank, last = rank;
    while (first < size) {
      count += std::min<int64_t>(last, size - 1) - first + 1;
      first = first * kChildren + 1;
      last = last * kChildren + kChildren;
    }
    return static_cast<int>(count);
  }
  /// Returns the number of levels below this rank.
  int levels() const {
    int count = 0;
    for (int64_t first = firstChild(); first < size && first > 0; first = first * kChildren + 1) {
      ++count;
    }
    return count;
  }
};

}  // namespace ctran
