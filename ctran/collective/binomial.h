#pragma once

#include <algorithm>

namespace ctran {

/// A tree over all ranks in which each rank is at most log2(size) hops from the root. Ranks are
/// counted from the root: rank v is a child of v without its lowest set bit, and has the children v
/// + 1, v + 2, v + 4 and so on below that bit. The ranks of its subtree follow it.
class Binomial {
 public:
  Binomial(int rank, int root, int size)
      : root_(root), size_(size), self_((rank - root + size) % size) {
    while (bit_ < size && (self_ & bit_) == 0) bit_ *= 2;
  }

  bool isRoot() const { return self_ == 0; }
  int parent() const { return rankOf(-bit_); }
  /// Children are at the distances 1, 2, 4 ... below this.
  int end() const { return bit_; }
  bool hasChild(int distance) const { return self_ + distance < size_; }
  /// Returns the rank that comes `distance` after this one, counted from the root.
  int rankOf(int distance) const { return (self_ + distance + root_) % size_; }
  /// Returns how many ranks the subtree of the child at that distance has, the child included; for
  /// distance 0, the subtree of this rank.
  int below(int distance) const {
    return std::min(distance == 0 ? bit_ : distance, size_ - self_ - distance);
  }

 private:
  int root_, size_, self_;
  int bit_ = 1;
};

}  // namespace ctran
