#pragma once

#include <functional>
#include <vector>

namespace ctran {

/// How far two ranks are from each other; any scale, symmetric.
using RankDistance = std::function<int(int, int)>;

/// An order of the ranks around which few long ways are gone: from rank 0 always on to the nearest
/// that is left, then pairs of edges are exchanged while that makes the way shorter. The same on
/// all ranks that agree about the distances.
std::vector<int> ringOrder(int size, const RankDistance& distance);

/// A tree over the ranks: parent[r], -1 for the root. Ranks that are near each other form a subtree
/// of their own, so that every long edge is gone once per group; inside a group, and among the
/// groups, the tree is binomial.
std::vector<int> treeParents(int size, int root, const RankDistance& distance);

}  // namespace ctran
