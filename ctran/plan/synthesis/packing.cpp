#include "ctran/plan/synthesis/packing.h"

#include <algorithm>

#include "ctran/base/error.h"
#include "ctran/plan/synthesis/flow.h"

namespace ctran::plan {
namespace {

Flow flowOf(const Capacities& capacity, size_t nodes) {
  Flow flow(static_cast<int>(nodes));
  for (size_t a = 0; a < capacity.size(); ++a) {
    for (size_t b = 0; b < capacity.size(); ++b) {
      if (capacity[a][b] > 0) flow.add(static_cast<int>(a), static_cast<int>(b), capacity[a][b]);
    }
  }
  return flow;
}

/// The network with a source, its last node, that gives each rank its trees.
Flow withSource(const Capacities& capacity, int ranks, int64_t trees) {
  const int source = static_cast<int>(capacity.size());
  Flow flow = flowOf(capacity, capacity.size() + 1);
  for (int r = 0; r < ranks; ++r) flow.add(source, r, trees);
  return flow;
}

/// Switches, one after another.
class Splitter {
 public:
  Splitter(Capacities& capacity, int ranks, int64_t trees)
      : capacity_(capacity), ranks_(ranks), trees_(trees) {
    const int nodes = static_cast<int>(capacity.size());
    for (int a = 0; a < nodes; ++a) {
      for (int b = 0; b < nodes; ++b) {
        if (capacity[a][b] > 0) routes_[{a, b}] = {{{a, b}, capacity[a][b]}};
      }
    }
  }

  Routes run() {
    const int nodes = static_cast<int>(capacity_.size());
    for (int w = ranks_; w < nodes; ++w) {
      // First what leaves the switch is spread evenly over what enters it, rounded down, then up,
      // so that trees are low; then what is left goes wherever it can. Back to where it came from
      // is the last resort.
      const Capacities before = capacity_;
      const auto evenShare = [&](int u, int t, int64_t more) {
        int64_t enters = 0;
        for (int n = 0; n < nodes; ++n) enters += n == t ? 0 : before[n][w];
        return enters == 0 ? 0 : (before[u][w] * before[w][t] + more * (enters - 1)) / enters;
      };
      for (int pass = 0; pass < 3; ++pass) {
        for (int t = 0; t < nodes; ++t) {
          for (int u = 0; u < nodes; ++u) {
            if (u == t) continue;
            split(u, w, t, pass < 2 ? evenShare(u, t, pass) - split_[{u, t}] : INT64_MAX);
          }
        }
      }
      for (int t = 0; t < nodes; ++t) split(t, w, t, INT64_MAX);
      split_.clear();
      for (int n = 0; n < nodes; ++n) {
        if (capacity_[w][n] == 0 && capacity_[n][w] == 0) continue;
        throw Error(ErrorKind::System, "synthesis: a switch cannot be split off");
      }
    }
    Routes routes;
    for (auto& [ends, ways] : routes_) {
      if (ends.first != ends.second && !ways.empty()) routes[ends] = std::move(ways);
    }
    return routes;
  }

 private:
  void split(int u, int w, int t, int64_t atMost) {
    const int64_t wanted = std::min({capacity_[u][w], capacity_[w][t], atMost});
    if (wanted <= 0) return;
    const int64_t amount = spare(u, w, t, wanted);
    if (amount == 0) return;
    split_[{u, t}] += amount;
    capacity_[u][w] -= amount;
    capacity_[w][t] -= amount;
    auto first = take({u, w}, amount), second = take({w, t}, amount);
    if (u == t) return;
    capacity_[u][t] += amount;
    join(std::move(first), std::move(second), routes_[{u, t}]);
  }

  /// How much can go from u past w to t directly, up to `wanted`. A set of nodes lets less out
  /// then if u and t are in it and w is not, or w is and they are not; it must still let out as
  /// much as the trees from its ranks to one outside need.
  int64_t spare(int u, int w, int t, int64_t wanted) const {
    const int source = static_cast<int>(capacity_.size());
    const int64_t needed = ranks_ * trees_;
    for (int v = 0; v < ranks_ && wanted > 0; ++v) {
      if (v != u && v != t) {
        Flow flow = withSource(capacity_, ranks_, trees_);
        flow.add(source, u, Flow::kUnbounded);
        flow.add(source, t, Flow::kUnbounded);
        flow.add(w, v, Flow::kUnbounded);
        wanted = std::min(wanted, flow.run(source, v, needed + wanted) - needed);
      }
      Flow flow = withSource(capacity_, ranks_, trees_);
      flow.add(source, w, Flow::kUnbounded);
      if (u != v) flow.add(u, v, Flow::kUnbounded);
      if (t != v) flow.add(t, v, Flow::kUnbounded);
      wanted = std::min(wanted, flow.run(source, v, needed + wanted) - needed);
    }
    return wanted;
  }

  using Ways = std::vector<Route>;

  Ways take(std::pair<int, int> ends, int64_t amount) {
    Ways& have = routes_[ends];
    Ways taken;
    while (amount > 0) {
      Route& last = have.back();
      const int64_t share = std::min(amount, last.share);
      taken.push_back({last.nodes, share});
      last.share -= share;
      amount -= share;
      if (last.share == 0) have.pop_back();
    }
    return taken;
  }

  static void join(Ways first, Ways second, Ways& into) {
    while (!first.empty()) {
      const int64_t share = std::min(first.back().share, second.back().share);
      Route route{first.back().nodes, share};
      route.nodes.insert(route.nodes.end(), second.back().nodes.begin() + 1,
                         second.back().nodes.end());
      const auto same = std::find_if(
          into.begin(), into.end(), [&](const Route& other) { return other.nodes == route.nodes; });
      if (same == into.end()) {
        into.push_back(std::move(route));
      } else {
        same->share += share;
      }
      if ((first.back().share -= share) == 0) first.pop_back();
      if ((second.back().share -= share) == 0) second.pop_back();
    }
  }

  Capacities& capacity_;
  const int ranks_;
  const int64_t trees_;
  Routes routes_;
  std::map<std::pair<int, int>, int64_t> split_;  // of the switch at hand
};

/// A tree that grows, several alike.
struct Growing {
  Tree tree;
  std::vector<int> members;
  std::vector<bool> has;

  bool isWhole() const { return members.size() == has.size(); }
};

/// How many of the trees `which` may get the edge from x to y: as many as leave enough to the
/// others. Every set of ranks has to let out the trees that are still within it.
int64_t spare(const Capacities& capacity, const std::vector<Growing>& all, size_t which, int x,
              int y) {
  const int64_t wanted = std::min(capacity[x][y], all[which].tree.share);
  if (wanted == 0) return 0;
  std::vector<const Growing*> others;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i != which && !all[i].isWhole()) others.push_back(&all[i]);
  }
  Flow flow = flowOf(capacity, capacity.size() + others.size());
  int64_t needed = 0;
  for (size_t i = 0; i < others.size(); ++i) {
    const int node = static_cast<int>(capacity.size() + i);
    flow.add(x, node, others[i]->tree.share);
    for (const int member : others[i]->members) flow.add(node, member, Flow::kUnbounded);
    needed += others[i]->tree.share;
  }
  return std::min(wanted, flow.run(x, y, needed + wanted) - needed);
}

}  // namespace

bool isEnough(const Capacities& capacity, int ranks, int64_t trees) {
  for (int v = 0; v < ranks; ++v) {
    Flow flow = withSource(capacity, ranks, trees);
    if (flow.run(static_cast<int>(capacity.size()), v) < ranks * trees) return false;
  }
  return true;
}

Routes splitOff(Capacities& capacity, int ranks, int64_t trees) {
  Routes routes = Splitter(capacity, ranks, trees).run();
  capacity.resize(ranks);
  for (auto& row : capacity) row.resize(ranks);
  return routes;
}

std::vector<Tree> grow(Capacities capacity, int ranks, int64_t trees) {
  std::vector<Growing> all;
  for (int r = 0; r < ranks; ++r) {
    all.push_back({{r, trees, {}}, {r}, std::vector<bool>(ranks, false)});
    all[r].has[r] = true;
  }
  // All grow alike: low ones first, nobody at the cost of the others.
  for (bool grown = true; grown;) {
    grown = false;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].isWhole()) continue;
      // Breadth first: from the member that came first.
      for (size_t m = 0; m < all[i].members.size(); ++m) {
        const int x = all[i].members[m];
        int64_t amount = 0;
        int y = 0;
        for (int d = 1; d < ranks && amount == 0; ++d) {
          y = (x + d) % ranks;
          if (!all[i].has[y]) amount = spare(capacity, all, i, x, y);
        }
        if (amount == 0) continue;
        if (amount < all[i].tree.share) {  // the others go on as they are
          Growing rest = all[i];
          rest.tree.share -= amount;
          all.push_back(std::move(rest));
          all[i].tree.share = amount;
        }
        capacity[x][y] -= amount;
        all[i].tree.edges.emplace_back(x, y);
        all[i].members.push_back(y);
        all[i].has[y] = true;
        grown = true;
        break;
      }
    }
  }
  std::vector<Tree> done;
  for (Growing& growing : all) {
    if (!growing.isWhole()) throw Error(ErrorKind::System, "synthesis: a tree does not grow");
    done.push_back(std::move(growing.tree));
  }
  return done;
}

}  // namespace ctran::plan
