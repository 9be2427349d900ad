#pragma once

#include <algorithm>
#include <cstdint>

namespace ctran {

/// The tree in which ranks meet, rank 0 at its top: each hears its children and is heard by its
/// parent. Of up to 64 ranks all but rank 0 are its children; more levels follow one another.
struct MeetingTree {
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
  MeetingTree at(int other) const { return {other, size}; }

  /// Whether that rank is this one, or is below it.
  bool isAbove(int other) const {
    while (other > rank) other = parentOf(other);
    return other == rank;
  }
  /// How many ranks that is.
  int ranks() const {
    int64_t count = 0, first = rank, last = rank;
    while (first < size) {
      count += std::min<int64_t>(last, size - 1) - first + 1;
      first = first * kChildren + 1;
      last = last * kChildren + kChildren;
    }
    return static_cast<int>(count);
  }
  /// Levels below this rank.
  int levels() const {
    int count = 0;
    for (int64_t first = firstChild(); first < size && first > 0; first = first * kChildren + 1) {
      ++count;
    }
    return count;
  }
};

}  // namespace ctran
