#include "ctran/plan/synthesis/forest.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "ctran/base/error.h"
#include "ctran/plan/synthesis/flow.h"
#include "ctran/plan/synthesis/packing.h"

namespace ctran::plan {
namespace {

Error badSynthesis(const std::string& why) {
  return Error(ErrorKind::InvalidArgument, "synthesis: " + why);
}

/// A node that more enters than leaves, or less; -1 if there is none.
int unbalanced(const Capacities& capacity) {
  for (size_t n = 0; n < capacity.size(); ++n) {
    int64_t balance = 0;
    for (size_t other = 0; other < capacity.size(); ++other) {
      balance += capacity[other][n] - capacity[n][other];
    }
    if (balance != 0) return static_cast<int>(n);
  }
  return -1;
}

/// Capacities in whole trees, and how many trees each rank is the root of.
struct Scaled {
  Capacities capacity;
  int64_t trees;
  Fraction perTree;  // MB/s
};

/// At the bound: a tree is as wide as a common divisor of all capacities and the bound.
Scaled exactly(const Topology& topology, const Fraction& bound) {
  Scaled scaled{topology.capacities(), 0, {}};
  int64_t divisor = bound.over;
  for (auto& row : scaled.capacity) {
    for (int64_t& c : row) divisor = std::gcd(divisor, c *= bound.under);
  }
  for (auto& row : scaled.capacity) {
    for (int64_t& c : row) c /= divisor;
  }
  scaled.trees = bound.over / divisor;
  scaled.perTree = fraction(divisor, bound.under);
  return scaled;
}

/// The widest trees of which `trees` per rank fit, where links carry whole trees.
std::optional<Scaled> best(const Topology& topology, const Fraction& bound, int64_t trees) {
  const auto full = topology.capacities();
  Fraction width = fraction(bound.over, bound.under * trees);
  while (width.over > 0) {
    Scaled scaled{full, trees, width};
    Fraction next{0, 1};  // the widest at which some link carries one tree more
    for (auto& row : scaled.capacity) {
      for (int64_t& c : row) {
        if (c == 0) continue;
        const int64_t fits = c * width.under / width.over;
        const Fraction one = fraction(c, fits + 1);
        if (one.value() > next.value()) next = one;
        c = fits;
      }
    }
    if (unbalanced(scaled.capacity) < 0 && isEnough(scaled.capacity, topology.ranks, trees)) {
      return scaled;
    }
    // No tree is ever narrower than this: then each link carries as many as all ranks have.
    if (next.value() < bound.value() / static_cast<double>(trees) / 64) break;
    width = next;
  }
  return std::nullopt;
}

}  // namespace

Fraction fraction(int64_t over, int64_t under) {
  const int64_t divisor = std::max<int64_t>(std::gcd(over, under), 1);
  return {over / divisor, under / divisor};
}

Fraction cutBound(const Topology& topology) {
  const auto capacity = topology.capacities();
  const int nodes = topology.nodes(), ranks = topology.ranks;
  if (ranks < 2) throw badSynthesis("it takes two ranks");
  // What enters rank 0 is more than can be sent to it, by ranks - 1 others.
  int64_t enters = 0;
  for (int n = 0; n < nodes; ++n) enters += capacity[n][0];
  Fraction bound = fraction(enters, ranks - 1);
  for (int v = 0; v < ranks && bound.over > 0; ++v) {
    while (true) {
      Flow flow(nodes + 1);
      for (int a = 0; a < nodes; ++a) {
        for (int b = 0; b < nodes; ++b) {
          if (capacity[a][b] > 0) flow.add(a, b, capacity[a][b] * bound.under);
        }
      }
      for (int r = 0; r < ranks; ++r) flow.add(nodes, r, bound.over);
      if (flow.run(nodes, v) >= ranks * bound.over) break;
      int64_t leaves = 0, inside = 0;
      for (int a = 0; a < nodes; ++a) {
        if (!flow.isOnSourceSide(a)) continue;
        inside += a < ranks;
        for (int b = 0; b < nodes; ++b) leaves += flow.isOnSourceSide(b) ? 0 : capacity[a][b];
      }
      bound = fraction(leaves, inside);
      if (leaves == 0) break;
    }
    if (bound.over == 0) throw badSynthesis("not every rank can reach rank " + std::to_string(v));
  }
  if (bound.over == 0) throw badSynthesis("nothing reaches rank 0");
  return bound;
}

Forest packTrees(const Topology& topology, int mostShares) {
  if (mostShares < 1) throw badSynthesis(std::to_string(mostShares) + " shares make no data");
  const int node = unbalanced(topology.capacities());
  if (node >= 0) {
    throw badSynthesis("as much has to leave " + topology.nameOf(node) + " as enters it");
  }
  Forest forest;
  forest.bound = cutBound(topology);
  Scaled scaled = exactly(topology, forest.bound);
  if (scaled.trees > mostShares) {
    std::optional<Scaled> found;
    for (int trees = 1; trees <= mostShares; ++trees) {
      auto candidate = best(topology, forest.bound, trees);
      if (!candidate) continue;
      const auto rateOf = [](const Scaled& s) {
        return s.perTree.value() * static_cast<double>(s.trees);
      };
      if (!found || rateOf(*candidate) > rateOf(*found) * (1 + 1e-12)) found = candidate;
    }
    if (!found)
      throw badSynthesis("whole trees do not fit; allow more than " + std::to_string(mostShares) +
                         " shares");
    scaled = std::move(*found);
  }
  forest.rate = fraction(scaled.perTree.over * scaled.trees, scaled.perTree.under);
  forest.routes = splitOff(scaled.capacity, topology.ranks, scaled.trees);
  forest.trees = grow(scaled.capacity, topology.ranks, scaled.trees);
  // As few shares as there can be.
  int64_t divisor = scaled.trees;
  for (const Tree& tree : forest.trees) divisor = std::gcd(divisor, tree.share);
  for (Tree& tree : forest.trees) tree.share /= divisor;
  forest.shares = scaled.trees / divisor;
  return forest;
}

}  // namespace ctran::plan
