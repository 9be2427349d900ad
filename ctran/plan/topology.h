#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ctran/base/json.h"

namespace ctran::plan {

/// Ranks, switches, and the links between them. Nodes 0 to ranks - 1 are the ranks, then come the
/// switches, which pass data on but neither keep, copy nor reduce it.
struct Topology {
  struct Link {
    int from, to;
    int64_t capacity;  ///< MB/s

    bool operator==(const Link&) const = default;
  };

  int ranks = 0;
  std::vector<std::string> switches;
  std::vector<Link> links;  ///< one way each
  double latency = 1e-6;    ///< of every link, in seconds

  int nodes() const { return ranks + static_cast<int>(switches.size()); }
  std::string nameOf(int node) const {
    return node < ranks ? "rank " + std::to_string(node) : switches[node - ranks];
  }
  void linkBothWays(int a, int b, int64_t capacity) {
    links.push_back({a, b, capacity});
    links.push_back({b, a, capacity});
  }
  /// MB/s from node to node, parallel links together: [from][to].
  std::vector<std::vector<int64_t>> capacities() const;
};

/// {"ranks": 8, "links": [[0, "switch", 450], ...], "one_way": [...], "latency": 1e-6}: ranks are
/// numbers, switches names, capacities GB/s. Switches are numbered as they are named, first of all
/// in "switches", if that is there. Throws Error(InvalidArgument).
Topology topologyFromJson(const Json& json);
Json toJson(const Topology& topology);

/// "nvswitch:8", "pcie:8", "hosts:2x8x4", "torus:4x4"; see docs/plans.md. Throws
/// Error(InvalidArgument).
Topology makeTopology(std::string_view text);

/// A way from a rank to a rank, and how much of what goes from one to the other goes there.
struct Route {
  std::vector<int> nodes;  ///< both ends too
  int64_t share = 1;
};
using Routes = std::map<std::pair<int, int>, std::vector<Route>>;

/// [[from, to, [node, ...], share], ...], nodes as numbers: switches follow the ranks in the order
/// in which the topology names them. Throws Error(InvalidArgument).
Routes routesFromJson(const Json& json);
Json toJson(const Routes& routes);

/// The way with the fewest links, of these the widest; through ranks too, as in a torus whose nodes
/// route. Throws Error(InvalidArgument) if there is none.
std::vector<int> shortestRoute(const Topology& topology, int from, int to);

}  // namespace ctran::plan
