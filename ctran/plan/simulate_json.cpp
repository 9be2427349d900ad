// Machines and timelines as JSON.
#include "ctran/base/error.h"
#include "ctran/plan/simulate.h"

namespace ctran::plan {
namespace {

Json timeJson(double seconds) { return seconds < kNever ? Json(seconds) : Json(); }

}  // namespace

Machine machineFromJson(const Json& json) {
  Machine machine;
  const auto positive = [](const Json& value, const std::string& name) {
    if (value.asDouble() > 0) return value.asDouble();
    throw Error(ErrorKind::InvalidArgument, "a machine's " + name + " must be positive");
  };
  const auto count = [](const Json& value, const std::string& name) {
    const int number = value.asInt32();
    if (number >= 1) return number;
    throw Error(ErrorKind::InvalidArgument, "a machine's " + name + " must be at least 1");
  };
  // Longer than this nothing is simulated; sums of such times are finite.
  constexpr double kMostSeconds = 1e9;
  const auto cost = [](const Json& value, const std::string& name) {
    const double number = value.asDouble();
    if (number >= 0 && number <= kMostSeconds) return number;
    throw Error(ErrorKind::InvalidArgument,
                "a machine's " + name + " must be between 0 and 1e9, not " + value.print());
  };
  const auto linkOf = [&](const Json& value, LinkCost& link) {
    for (const auto& [name, number] : value.members()) {
      if (name == "latency") {
        link.latency = cost(number, name);
      } else if (name == "overhead") {
        link.overhead = cost(number, name);
      } else if (name == "bandwidth") {
        link.bandwidth = positive(number, name);
      } else {
        throw Error(ErrorKind::InvalidArgument, "a link has no '" + name + "'");
      }
    }
  };
  const auto pairsOf = [&](const Json& value, const std::string& name,
                           std::vector<std::pair<int, double>>& pairs) {
    for (const Json& pair : value.items()) {
      if (pair.items().size() != 2) {
        throw Error(ErrorKind::InvalidArgument, "expected [rank, number], not " + pair.print());
      }
      pairs.emplace_back(pair.items()[0].asInt32(), cost(pair.items()[1], name));
    }
  };
  const auto sharedOf = [&](const Json& value) {
    SharedMemory shared;
    for (const auto& [name, number] : value.members()) {
      if (name == "read_bandwidth") {
        shared.readBandwidth = positive(number, name);
      } else if (name == "write_bandwidth") {
        shared.writeBandwidth = positive(number, name);
      } else if (name == "signal_overhead") {
        shared.signalOverhead = cost(number, name);
      } else if (name == "arrival") {
        shared.arrival = cost(number, name);
      } else {
        throw Error(ErrorKind::InvalidArgument, "shared memory has no '" + name + "'");
      }
    }
    return shared;
  };
  for (const auto& [name, value] : json.members()) {
    if (name == "ranks_per_host") {
      machine.ranksPerHost = count(value, name);
    } else if (name == "local") {
      linkOf(value, machine.local);
    } else if (name == "network") {
      linkOf(value, machine.network);
    } else if (name == "cards_per_host") {
      machine.cardsPerHost = count(value, name);
    } else if (name == "copy_bandwidth") {
      machine.copyBandwidth = positive(value, name);
    } else if (name == "reduce_bandwidth") {
      machine.reduceBandwidth = positive(value, name);
    } else if (name == "start") {
      machine.start = cost(value, name);
    } else if (name == "cache_bytes") {
      machine.cacheBytes = value.asDouble();
    } else if (name == "memory_bandwidth") {
      machine.memoryBandwidth = positive(value, name);
    } else if (name == "step_overhead") {
      machine.stepOverhead = cost(value, name);
    } else if (name == "lanes_in_turns") {
      machine.lanesInTurns = value.asBool();
    } else if (name == "shared_memory") {
      machine.sharedMemory = sharedOf(value);
    } else if (name == "topology") {
      machine.topology = value.type() == Json::Type::String ? makeTopology(value.asString())
                                                            : topologyFromJson(value);
    } else if (name == "routes") {
      machine.routes = routesFromJson(value);
    } else if (name == "slow_ranks") {
      pairsOf(value, name, machine.slowRanks);
    } else if (name == "dead_ranks") {
      pairsOf(value, name, machine.deadRanks);
    } else if (name == "slow_links") {
      for (const Json& slow : value.items()) {
        const auto& items = slow.items();
        if (items.size() != 3) {
          throw Error(ErrorKind::InvalidArgument,
                      "expected [from, to, factor], not " + slow.print());
        }
        machine.slowLinks.push_back({items[0].asInt32(), items[1].asInt32(), cost(items[2], name)});
      }
    } else {
      throw Error(ErrorKind::InvalidArgument, "a machine has no '" + name + "'");
    }
  }
  return machine;
}

Json toJson(const Machine& machine) {
  const auto link = [](const LinkCost& cost) {
    Json json = Json::object();
    json.set("latency", Json(cost.latency)).set("overhead", Json(cost.overhead));
    json.set("bandwidth", Json(cost.bandwidth));
    return json;
  };
  Json json = Json::object();
  json.set("ranks_per_host", Json(machine.ranksPerHost));
  json.set("cards_per_host", Json(machine.cardsPerHost));
  json.set("local", link(machine.local)).set("network", link(machine.network));
  json.set("copy_bandwidth", Json(machine.copyBandwidth));
  json.set("reduce_bandwidth", Json(machine.reduceBandwidth));
  json.set("step_overhead", Json(machine.stepOverhead)).set("start", Json(machine.start));
  json.set("cache_bytes", Json(machine.cacheBytes));
  json.set("memory_bandwidth", Json(machine.memoryBandwidth));
  json.set("lanes_in_turns", Json(machine.lanesInTurns));
  if (machine.sharedMemory) {
    Json shared = Json::object();
    shared.set("read_bandwidth", Json(machine.sharedMemory->readBandwidth));
    shared.set("write_bandwidth", Json(machine.sharedMemory->writeBandwidth));
    shared.set("signal_overhead", Json(machine.sharedMemory->signalOverhead));
    shared.set("arrival", Json(machine.sharedMemory->arrival));
    json.set("shared_memory", std::move(shared));
  }
  return json;
}

Json toJson(const Timeline& timeline) {
  Json ends = Json::array(), activities = Json::array(), transfers = Json::array();
  Json links = Json::object(), stuck = Json::array();
  for (const double end : timeline.ends) ends.push(timeJson(end));
  for (const Activity& a : timeline.activities) {
    activities.push(Json::array({Json(a.lane.rank), Json(a.lane.lane), Json(a.step),
                                 Json(a.execution), Json(a.start), Json(a.end)}));
  }
  for (const Transfer& t : timeline.transfers) {
    transfers.push(Json::array({Json(t.from), Json(t.to), Json(static_cast<int64_t>(t.bytes)),
                                Json(t.start), Json(t.end)}));
  }
  for (const LinkUse& use : timeline.links) links.set(use.link, Json(use.busy));
  for (const std::string& text : timeline.stuck) stuck.push(Json(text));
  Json json = Json::object();
  json.set("seconds", timeJson(timeline.seconds)).set("ends", std::move(ends));
  json.set("activities", std::move(activities)).set("transfers", std::move(transfers));
  json.set("links", std::move(links)).set("stuck", std::move(stuck));
  return json;
}

}  // namespace ctran::plan
