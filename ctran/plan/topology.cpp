#include "ctran/plan/topology.h"

#include <algorithm>
#include <cmath>

#include "ctran/base/error.h"

namespace ctran::plan {
namespace {

constexpr int kMaxNodes = 1024;

Error badTopology(const std::string& why) {
  return Error(ErrorKind::InvalidArgument, "topology: " + why);
}

int nodeFromJson(Topology& topology, const Json& json) {
  if (json.type() == Json::Type::String) {
    auto& names = topology.switches;
    const auto at = std::find(names.begin(), names.end(), json.asString());
    const int index = static_cast<int>(at - names.begin());
    if (at == names.end()) names.push_back(json.asString());
    return topology.ranks + index;
  }
  const int64_t rank = json.asInt();
  if (rank < 0 || rank >= topology.ranks) {
    throw badTopology("there is no rank " + std::to_string(rank) + " among " +
                      std::to_string(topology.ranks));
  }
  return static_cast<int>(rank);
}

void linksFromJson(Topology& topology, const Json& json, bool bothWays) {
  for (const Json& link : json.items()) {
    if (link.items().size() != 3) {
      throw badTopology("expected [from, to, GB/s], not " + link.print());
    }
    const int from = nodeFromJson(topology, link.items()[0]);
    const int to = nodeFromJson(topology, link.items()[1]);
    const double speed = link.items()[2].asDouble() * 1000;
    if (from == to) throw badTopology("a link leads from " + topology.nameOf(from) + " to itself");
    if (!(speed >= 1 && speed <= 1e9) || std::abs(speed - std::round(speed)) > 1e-6) {
      throw badTopology("the speed of a link is a multiple of 0.001 GB/s, at most a million, not " +
                        link.items()[2].print());
    }
    topology.links.push_back({from, to, std::llround(speed)});
    if (bothWays) topology.links.push_back({to, from, std::llround(speed)});
  }
}

std::vector<int> numbersOf(std::string_view text) {
  std::vector<int> numbers(1, 0);
  for (const char c : text) {
    if (c == 'x') {
      numbers.push_back(0);
    } else if (c >= '0' && c <= '9' && numbers.back() < kMaxNodes) {
      numbers.back() = numbers.back() * 10 + (c - '0');
    } else {
      return {};
    }
  }
  const bool good = std::all_of(numbers.begin(), numbers.end(), [](int n) { return n >= 1; });
  return good ? numbers : std::vector<int>{};
}

/// Every rank at one switch, 450 GB/s each way.
Topology nvswitch(int ranks) {
  Topology t{ranks, {"nvswitch"}, {}};
  for (int r = 0; r < ranks; ++r) t.linkBothWays(r, ranks, 450'000);
  return t;
}

/// Two sockets with two PCIe switches each, all ranks evenly at these: 25 GB/s, 18 between sockets.
Topology pcie(int ranks) {
  Topology t{ranks, {"socket 0", "socket 1"}, {}};
  t.linkBothWays(ranks, ranks + 1, 18'000);
  for (int s = 0; s < 4; ++s) {
    t.switches.push_back("pcie " + std::to_string(s));
    t.linkBothWays(ranks + 2 + s, ranks + s / 2, 25'000);
    for (int r = 0; r < ranks / 4; ++r) {
      t.linkBothWays(s * (ranks / 4) + r, ranks + 2 + s, 25'000);
    }
  }
  return t;
}

/// Hosts of `g` ranks at an NVSwitch (450 GB/s), with `cards` network cards of 50 GB/s, each at a
/// PCIe switch that its ranks share (50 GB/s each).
Topology ofHosts(int hosts, int g, int cards) {
  Topology t{hosts * g, {"network"}, {}};
  for (int h = 0; h < hosts; ++h) {
    const int nvswitch = t.nodes();
    t.switches.push_back("nvswitch " + std::to_string(h));
    for (int r = 0; r < g; ++r) t.linkBothWays(h * g + r, nvswitch, 450'000);
    for (int c = 0; c < cards; ++c) {
      const int pcie = t.nodes();
      t.switches.push_back("pcie " + std::to_string(h) + "." + std::to_string(c));
      t.linkBothWays(pcie, t.ranks, 50'000);
      for (int r = c; r < g; r += cards) t.linkBothWays(h * g + r, pcie, 50'000);
    }
  }
  return t;
}

/// Ranks in a grid whose rows and columns close to rings: 25 GB/s.
Topology torus(int rows, int columns) {
  Topology t{rows * columns, {}, {}};
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      const auto at = [&](int row, int column) { return row % rows * columns + column % columns; };
      // A ring of two is one link.
      if (columns > 2 || c + 1 < columns) t.linkBothWays(at(r, c), at(r, c + 1), 25'000);
      if (rows > 2 || r + 1 < rows) t.linkBothWays(at(r, c), at(r + 1, c), 25'000);
    }
  }
  return t;
}

}  // namespace

std::vector<std::vector<int64_t>> Topology::capacities() const {
  std::vector<std::vector<int64_t>> all(nodes(), std::vector<int64_t>(nodes(), 0));
  for (const Link& link : links) all[link.from][link.to] += link.capacity;
  return all;
}

Topology topologyFromJson(const Json& json) {
  Topology topology;
  const int64_t ranks = json.at("ranks").asInt();
  if (ranks < 1 || ranks > kMaxNodes) {
    throw badTopology(std::to_string(ranks) + " ranks are not between 1 and " +
                      std::to_string(kMaxNodes));
  }
  topology.ranks = static_cast<int>(ranks);
  if (const Json* switches = json.find("switches")) {
    for (const Json& name : switches->items()) topology.switches.push_back(name.asString());
  }
  for (const auto& [name, value] : json.members()) {
    if (name == "links" || name == "one_way") {
      linksFromJson(topology, value, name == "links");
    } else if (name == "latency") {
      topology.latency = value.asDouble();
      if (!(topology.latency >= 0)) throw badTopology("the latency must not be negative");
    } else if (name != "ranks" && name != "switches") {
      throw badTopology("it has no '" + name + "'");
    }
  }
  if (topology.nodes() > kMaxNodes) throw badTopology("it has too many switches");
  return topology;
}

Json toJson(const Topology& topology) {
  Json links = Json::array();
  const auto node = [&](int n) {
    return n < topology.ranks ? Json(n) : Json(topology.switches[n - topology.ranks]);
  };
  for (const Topology::Link& link : topology.links) {
    links.push(Json::array(
        {node(link.from), node(link.to), Json(static_cast<double>(link.capacity) / 1000)}));
  }
  Json json = Json::object();
  Json switches = Json::array();
  for (const std::string& name : topology.switches) switches.push(Json(name));
  json.set("ranks", Json(topology.ranks)).set("switches", std::move(switches));
  json.set("latency", Json(topology.latency));
  json.set("one_way", std::move(links));
  return json;
}

Routes routesFromJson(const Json& json) {
  Routes routes;
  for (const Json& item : json.items()) {
    if (item.items().size() != 4) {
      throw badTopology("expected [from, to, nodes, share], not " + item.print());
    }
    Route route;
    for (const Json& node : item.items()[2].items()) {
      route.nodes.push_back(static_cast<int>(node.asInt()));
    }
    route.share = item.items()[3].asInt();
    const int from = static_cast<int>(item.items()[0].asInt());
    const int to = static_cast<int>(item.items()[1].asInt());
    if (route.nodes.size() < 2 || route.nodes.front() != from || route.nodes.back() != to ||
        route.share < 1) {
      throw badTopology("that is no route: " + item.print());
    }
    routes[{from, to}].push_back(std::move(route));
  }
  return routes;
}

Json toJson(const Routes& routes) {
  Json json = Json::array();
  for (const auto& [ends, ways] : routes) {
    for (const Route& way : ways) {
      Json nodes = Json::array();
      for (const int node : way.nodes) nodes.push(Json(node));
      json.push(
          Json::array({Json(ends.first), Json(ends.second), std::move(nodes), Json(way.share)}));
    }
  }
  return json;
}

Topology makeTopology(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const auto n = numbersOf(colon == text.npos ? "" : text.substr(colon + 1));
  const auto total = [&] {
    int product = 1;
    for (const int number : n) product = std::min(product * number, kMaxNodes + 1);
    return product;
  };
  if (n.empty() || total() > kMaxNodes) {
    // Falls through to the error.
  } else if (kind == "nvswitch" && n.size() == 1) {
    return nvswitch(n[0]);
  } else if (kind == "pcie" && n.size() == 1 && n[0] % 4 == 0) {
    return pcie(n[0]);
  } else if (kind == "hosts" && n.size() == 3 && n[2] <= n[1]) {
    return ofHosts(n[0], n[1], n[2]);
  } else if (kind == "torus" && n.size() == 2) {
    return torus(n[0], n[1]);
  }
  throw Error(ErrorKind::InvalidArgument, "there is no topology '" + std::string(text) + "'", {},
              {},
              "there are nvswitch:RANKS, pcie:RANKS (a multiple of 4), "
              "hosts:HOSTSxRANKSxCARDS (at most as many cards as ranks), torus:ROWSxCOLUMNS, "
              "and files");
}

std::vector<int> shortestRoute(const Topology& topology, int from, int to) {
  const auto capacity = topology.capacities();
  const int nodes = topology.nodes();
  std::vector<int> hops(nodes, -1), previous(nodes, -1);
  std::vector<int64_t> width(nodes, 0);
  std::vector<int> front{from};
  hops[from] = 0;
  width[from] = INT64_MAX;
  while (!front.empty() && hops[to] < 0) {
    std::vector<int> next;
    for (const int node : front) {
      for (int n = 0; n < nodes; ++n) {
        if (capacity[node][n] == 0) continue;
        const int64_t wide = std::min(width[node], capacity[node][n]);
        if (hops[n] < 0) {
          hops[n] = hops[node] + 1;
          next.push_back(n);
        } else if (hops[n] != hops[node] + 1 || width[n] >= wide) {
          continue;
        }
        width[n] = wide;
        previous[n] = node;
      }
    }
    front = std::move(next);
  }
  if (hops[to] >= 0) {
    std::vector<int> route{to};
    while (route.back() != from) route.push_back(previous[route.back()]);
    std::reverse(route.begin(), route.end());
    return route;
  }
  throw badTopology("no way leads from rank " + std::to_string(from) + " to rank " +
                    std::to_string(to));
}

}  // namespace ctran::plan
