#include "ctran/plan/simulate.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>

#include "ctran/base/error.h"

namespace ctran::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// A thing that is used by one after another.
struct Resource {
  double free = 0;
  double busy = 0;
};

class Simulation {
 public:
  Simulation(const Plan& plan, const Machine& machine, size_t bytes, int units)
      : plan_(plan), machine_(machine), bytes_(bytes), units_(units) {
    for (const auto* list : {&machine.slowRanks, &machine.deadRanks}) {
      for (const auto& [rank, value] : *list) checkRank(rank);
    }
    for (const auto& slow : machine.slowLinks) {
      checkRank(slow.from);
      checkRank(slow.to);
    }
    slowness_.assign(plan.ranks, 1.0);
    death_.assign(plan.ranks, kNever);
    for (const auto& [rank, factor] : machine.slowRanks) slowness_[rank] = factor;
    for (const auto& [rank, when] : machine.deadRanks) death_[rank] = when;
    for (const Channel& channel : plan.channels) {
      signals_.emplace_back();
      for (int i = 0; i < channel.credits; ++i) signals_.back().push_back(0);
    }
    for (int r = 0; r < plan.ranks; ++r) {
      for (int l = 0; l < static_cast<int>(plan.programs[r].size()); ++l) {
        lanes_.emplace_back();
        lanes_.back().id = {r, l};
      }
    }
  }

  /// Always the step that can begin first, so that shared links are given in the order of time.
  Timeline run() {
    while (true) {
      State* next = nullptr;
      double when = kNever;
      for (State& lane : lanes_) {
        const double ready = readyAt(lane);
        if (ready < when) {
          when = ready;
          next = &lane;
        }
      }
      if (next == nullptr) break;
      execute(*next, when);
    }
    finish();
    return std::move(timeline_);
  }

 private:
  struct State {
    LaneId id;
    int execution = 0;
    size_t step = 0;
    double now = 0;
    std::map<int, double> delivered;  // per rank: when all that was put there is there
  };

  void checkRank(int rank) const {
    if (rank >= 0 && rank < plan_.ranks) return;
    throw Error(ErrorKind::InvalidArgument, "the machine's faults name rank " +
                                                std::to_string(rank) + ", of " +
                                                std::to_string(plan_.ranks));
  }

  bool ended(const State& lane) const {
    return lane.execution == units_ || plan_.lane(lane.id).empty();
  }

  double readyAt(const State& lane) {
    if (ended(lane)) return kNever;
    double ready = lane.now;
    if (machine_.lanesInTurns) {
      ready = std::max(ready, resources_["rank " + std::to_string(lane.id.rank)].free);
    }
    const Step& step = plan_.lane(lane.id)[lane.step];
    for (const Wait& wait : step.waits) {
      const auto& queue = signals_[wait.channel];
      if (static_cast<int>(queue.size()) < wait.count) return kNever;
      ready = std::max(ready, queue[wait.count - 1]);
    }
    return ready < death_[lane.id.rank] ? ready : kNever;
  }

  void execute(State& lane, double start) {
    const int rank = lane.id.rank;
    const Step& step = plan_.lane(lane.id)[lane.step];
    for (const Wait& wait : step.waits) {
      auto& queue = signals_[wait.channel];
      queue.erase(queue.begin(), queue.begin() + wait.count);
    }
    double now = start + machine_.stepOverhead * slowness_[rank];
    if (step.moves()) now = move(lane, step, now);
    for (const int signal : step.signals) {
      const int to = plan_.channels[signal].to.rank;
      double arrival = now;
      if (to != rank) {
        arrival = std::max(now, lane.delivered[to]) + costOf(rank, to).latency * slowLink(rank, to);
        // What was put there before has its latency in it already.
        if (lane.delivered[to] > now) arrival = lane.delivered[to];
      }
      signals_[signal].push_back(arrival);
    }
    timeline_.activities.push_back(
        {lane.id, static_cast<int>(lane.step), lane.execution, start, now});
    lane.now = now;
    if (machine_.lanesInTurns) {
      Resource& thread = resources_["rank " + std::to_string(rank)];
      thread.busy += now - start;
      thread.free = now;
    }
    if (++lane.step == plan_.lane(lane.id).size()) {
      lane.step = 0;
      ++lane.execution;
    }
  }

  double move(State& lane, const Step& step, double now) {
    const int rank = lane.id.rank;
    const double bytes = static_cast<double>(bytes_) / plan_.chunks / units_ * step.count;
    double ready = now;
    for (const Place& place : step.from) {
      if (place.rank != rank) ready = std::max(ready, transfer(place.rank, rank, bytes, now));
    }
    now = ready;
    const double sources = static_cast<double>(step.from.size());
    if (sources > 1) now += sources * bytes / machine_.reduceBandwidth * slowness_[rank];
    bool gets = false;
    for (const Place& place : step.from) gets |= place.rank != rank;
    for (const Place& place : step.to) {
      if (place.rank == rank) {
        // A reduction or a get has written its first destination already.
        if (sources == 1 && !gets) now += bytes / machine_.copyBandwidth * slowness_[rank];
      } else {
        const double there = transfer(rank, place.rank, bytes, now);
        lane.delivered[place.rank] = std::max(lane.delivered[place.rank], there);
        now = there - costOf(rank, place.rank).latency * slowLink(rank, place.rank);
      }
    }
    return now;
  }

  const LinkCost& costOf(int from, int to) const {
    return from / machine_.ranksPerHost == to / machine_.ranksPerHost ? machine_.local
                                                                      : machine_.network;
  }

  double slowLink(int from, int to) const {
    double factor = 1;
    for (const auto& slow : machine_.slowLinks) {
      if (slow.from == from && slow.to == to) factor *= slow.factor;
    }
    return factor;
  }

  /// When the bytes are there. They leave when all that they go through is free.
  double transfer(int from, int to, double bytes, double now) {
    const LinkCost& cost = costOf(from, to);
    std::vector<Resource*> path;
    if (&cost == &machine_.local) {
      path = {&resources_["rank " + std::to_string(from) + " out"],
              &resources_["rank " + std::to_string(to) + " in"]};
    } else {
      const auto card = [&](int rank, const char* way) {
        const int host = rank / machine_.ranksPerHost;
        return &resources_["host " + std::to_string(host) + " card " +
                           std::to_string(rank % machine_.ranksPerHost % machine_.cardsPerHost) +
                           way];
      };
      path = {card(from, " out"), card(to, " in")};
    }
    double start = now + cost.overhead * slowness_[from];
    for (const Resource* link : path) start = std::max(start, link->free);
    const double time = bytes / cost.bandwidth * slowLink(from, to);
    for (Resource* link : path) {
      link->free = start + time;
      link->busy += time;
    }
    const double there = start + time + cost.latency * slowLink(from, to);
    timeline_.transfers.push_back({from, to, static_cast<size_t>(bytes), start, there});
    return there;
  }

  void finish() {
    timeline_.ends.assign(plan_.ranks, 0);
    for (const State& lane : lanes_) {
      double& end = timeline_.ends[lane.id.rank];
      if (ended(lane)) {
        end = std::max(end, lane.now);
        continue;
      }
      end = kNever;
      std::string text = toText(lane.id, static_cast<int>(lane.step));
      if (death_[lane.id.rank] < kNever) {
        text += " never runs: the rank is dead";
      } else {
        for (const Wait& wait : plan_.lane(lane.id)[lane.step].waits) {
          if (static_cast<int>(signals_[wait.channel].size()) >= wait.count) continue;
          text += " waits for rank " + std::to_string(plan_.channels[wait.channel].from.rank);
          break;
        }
      }
      timeline_.stuck.push_back(text);
    }
    timeline_.seconds = *std::max_element(timeline_.ends.begin(), timeline_.ends.end());
    for (const auto& [name, resource] : resources_) {
      timeline_.links.push_back({name, resource.busy});
    }
  }

  const Plan& plan_;
  const Machine& machine_;
  const size_t bytes_;
  const int units_;
  std::vector<double> slowness_, death_;
  std::vector<State> lanes_;
  std::vector<std::deque<double>> signals_;  // per channel: when those not yet taken are there
  std::map<std::string, Resource> resources_;
  Timeline timeline_;
};

Json timeOf(double seconds) { return seconds < kNever ? Json(seconds) : Json(); }

}  // namespace

Timeline simulate(const Plan& plan, const Machine& machine, size_t bytes, int units) {
  check(plan);
  if (units < 1) {
    throw Error(ErrorKind::InvalidArgument, std::to_string(units) + " units make no data");
  }
  return Simulation(plan, machine, bytes, units).run();
}

Machine machineFromJson(const Json& json) {
  Machine machine;
  const auto positive = [](const Json& value, const std::string& name) {
    if (value.asDouble() > 0) return value.asDouble();
    throw Error(ErrorKind::InvalidArgument, "a machine's " + name + " must be positive");
  };
  const auto linkOf = [&](const Json& value, LinkCost& link) {
    for (const auto& [name, number] : value.members()) {
      if (name == "latency") {
        link.latency = number.asDouble();
      } else if (name == "overhead") {
        link.overhead = number.asDouble();
      } else if (name == "bandwidth") {
        link.bandwidth = positive(number, name);
      } else {
        throw Error(ErrorKind::InvalidArgument, "a link has no '" + name + "'");
      }
    }
  };
  const auto pairsOf = [&](const Json& value, std::vector<std::pair<int, double>>& pairs) {
    for (const Json& pair : value.items()) {
      if (pair.items().size() != 2) {
        throw Error(ErrorKind::InvalidArgument, "expected [rank, number], not " + pair.print());
      }
      pairs.emplace_back(static_cast<int>(pair.items()[0].asInt()), pair.items()[1].asDouble());
    }
  };
  for (const auto& [name, value] : json.members()) {
    if (name == "ranks_per_host") {
      machine.ranksPerHost = static_cast<int>(positive(value, name));
    } else if (name == "local") {
      linkOf(value, machine.local);
    } else if (name == "network") {
      linkOf(value, machine.network);
    } else if (name == "cards_per_host") {
      machine.cardsPerHost = static_cast<int>(positive(value, name));
    } else if (name == "copy_bandwidth") {
      machine.copyBandwidth = positive(value, name);
    } else if (name == "reduce_bandwidth") {
      machine.reduceBandwidth = positive(value, name);
    } else if (name == "step_overhead") {
      machine.stepOverhead = value.asDouble();
    } else if (name == "lanes_in_turns") {
      machine.lanesInTurns = value.asBool();
    } else if (name == "slow_ranks") {
      pairsOf(value, machine.slowRanks);
    } else if (name == "dead_ranks") {
      pairsOf(value, machine.deadRanks);
    } else if (name == "slow_links") {
      for (const Json& slow : value.items()) {
        const auto& items = slow.items();
        if (items.size() != 3) {
          throw Error(ErrorKind::InvalidArgument,
                      "expected [from, to, factor], not " + slow.print());
        }
        machine.slowLinks.push_back({static_cast<int>(items[0].asInt()),
                                     static_cast<int>(items[1].asInt()), items[2].asDouble()});
      }
    } else {
      throw Error(ErrorKind::InvalidArgument, "a machine has no '" + name + "'");
    }
  }
  return machine;
}

Json toJson(const Timeline& timeline) {
  Json ends = Json::array(), activities = Json::array(), transfers = Json::array();
  Json links = Json::object(), stuck = Json::array();
  for (const double end : timeline.ends) ends.push(timeOf(end));
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
  json.set("seconds", timeOf(timeline.seconds)).set("ends", std::move(ends));
  json.set("activities", std::move(activities)).set("transfers", std::move(transfers));
  json.set("links", std::move(links)).set("stuck", std::move(stuck));
  return json;
}

}  // namespace ctran::plan
