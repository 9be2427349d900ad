#pragma once

#include <algorithm>

namespace ctran {

/// A tree over all ranks in which each is log2(size) hops from the root at most. Counted from the
/// root, rank v is the child of v without its lowest bit, and has the children v + 1, v + 2, v + 4
/// and so on below that bit; the ranks of its subtree follow it.
class Binomial {
 public:
  Binomial(int rank, int root, int size)
      : root_(root), size_(size), self_((rank - root + size) % size) {
    while (bit_ < size && (self_ & bit_) == 0) bit_ *= 2;
  }

  bool isRoot() const { return self_ == 0; }
  int parent() const { return rankOf(-bit_); }
  /// Children are at distance 1, 2, 4 ... below this.
  int end() const { return bit_; }
  bool hasChild(int distance) const { return self_ + distance < size_; }
  /// The rank that comes so many after this one, counted from the root.
  int rankOf(int distance) const { return (self_ + distance + root_) % size_; }
  /// How many ranks are below the child at that distance, itself included; of 0, below this rank.
  int below(int distance) const {
    return std::min(distance == 0 ? bit_ : distance, size_ - self_ - distance);
  }

 private:
  int root_, size_, self_;
  int bit_ = 1;
};

}  // namespace ctran
