#include "ctran/plan/simulate.h"

#include <algorithm>
#include <deque>
#include <map>
#include <queue>

#include "ctran/base/error.h"

namespace ctran::plan {
namespace {

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
    if (machine.topology) {
      if (machine.topology->ranks != plan.ranks) {
        throw Error(ErrorKind::InvalidArgument,
                    "the machine's topology is of " + std::to_string(machine.topology->ranks) +
                        " ranks, the plan for " + std::to_string(plan.ranks));
      }
      capacity_ = machine.topology->capacities();
      for (const auto& [ends, ways] : machine.routes) {
        for (const Route& way : ways) checkRoute(way);
      }
    }
    const double held =
        static_cast<double>(bytes) *
        (plan.blocks(Buffer::Output) + (plan.inPlace ? 0 : plan.blocks(Buffer::Input)));
    if (machine.cacheBytes > 0 && held > machine.cacheBytes) {
      secondsPerUserByte_ = (1 - machine.cacheBytes / held) / machine.memoryBandwidth;
    }
    slowness_.assign(plan.ranks, 1.0);
    death_.assign(plan.ranks, kNever);
    for (const auto& [rank, factor] : machine.slowRanks) slowness_[rank] = factor;
    for (const auto& [rank, when] : machine.deadRanks) death_[rank] = when;
    for (const Channel& channel : plan.channels) {
      signals_.emplace_back();
      for (int i = 0; i < channel.credits; ++i) signals_.back().push_back(0);
    }
    const double begins = machine.start + arrival();
    for (int r = 0; r < plan.ranks; ++r) {
      firstLane_.push_back(lanes_.size());
      threads_.push_back(machine.lanesInTurns ? &resource("rank " + std::to_string(r)) : nullptr);
      for (int l = 0; l < static_cast<int>(plan.programs[r].size()); ++l) {
        lanes_.emplace_back();
        lanes_.back().id = {r, l};
        lanes_.back().now = begins;
      }
    }
  }

  /// Always the step that can begin first, so that shared links are given in the order of time.
  Timeline run() {
    for (size_t l = 0; l < lanes_.size(); ++l) schedule(l);
    while (!ready_.empty()) {
      const auto [when, l] = ready_.top();
      ready_.pop();
      State& lane = lanes_[l];
      if (!lane.scheduled) continue;  // it was, twice
      lane.scheduled = false;
      const double now = readyAt(lane);
      if (now == kNever) continue;
      if (now > when) {
        schedule(l);
        continue;
      }
      execute(lane, when);
      schedule(l);
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
    bool scheduled = false;
  };
  struct Ready {
    double when;
    size_t lane;
    bool operator>(const Ready& other) const {
      return when != other.when ? when > other.when : lane > other.lane;
    }
  };

  /// A lane that waits for a signal is scheduled again when one comes.
  void schedule(size_t lane) {
    const double when = readyAt(lanes_[lane]);
    if (when == kNever) return;
    lanes_[lane].scheduled = true;
    ready_.push({when, lane});
  }

  void checkRank(int rank) const {
    if (rank >= 0 && rank < plan_.ranks) return;
    throw Error(ErrorKind::InvalidArgument, "the machine's faults name rank " +
                                                std::to_string(rank) + ", of " +
                                                std::to_string(plan_.ranks));
  }

  void checkRoute(const Route& route) const {
    const int nodes = machine_.topology->nodes();
    for (size_t i = 1; i < route.nodes.size(); ++i) {
      const int a = route.nodes[i - 1], b = route.nodes[i];
      if (a >= 0 && a < nodes && b >= 0 && b < nodes && capacity_[a][b] > 0) continue;
      throw Error(ErrorKind::InvalidArgument, "a route of the machine goes from node " +
                                                  std::to_string(a) + " to " + std::to_string(b) +
                                                  ", where the topology has no link");
    }
  }

  bool ended(const State& lane) const {
    return lane.execution == units_ || plan_.lane(lane.id).empty();
  }

  double readyAt(const State& lane) {
    if (ended(lane)) return kNever;
    double ready = lane.now;
    if (const Resource* thread = threads_[lane.id.rank]) ready = std::max(ready, thread->free);
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
    if (machine_.sharedMemory) {
      now += static_cast<double>(step.waits.size() + step.signals.size()) *
             machine_.sharedMemory->signalOverhead * slowness_[rank];
    }
    if (step.moves())
      now = isShared(step, rank) ? moveShared(step, rank, now) : move(lane, step, now);
    for (const int signal : step.signals) {
      const int to = plan_.channels[signal].to.rank;
      double arrival = now;
      if (to != rank) {
        arrival = std::max(now, lane.delivered[to]) + latency(rank, to);
        // What was put there before has its latency in it already.
        if (lane.delivered[to] > now) arrival = lane.delivered[to];
      }
      signals_[signal].push_back(arrival);
      const LaneId consumer = plan_.channels[signal].to;
      const size_t index = firstLane_[consumer.rank] + consumer.lane;
      if (!lanes_[index].scheduled) schedule(index);
    }
    timeline_.activities.push_back(
        {lane.id, static_cast<int>(lane.step), lane.execution, start, now});
    lane.now = now;
    if (Resource* thread = threads_[rank]) {
      thread->busy += now - start;
      thread->free = now;
    }
    if (++lane.step == plan_.lane(lane.id).size()) {
      lane.step = 0;
      ++lane.execution;
    }
  }

  double arrival() const {
    if (!machine_.sharedMemory) return 0;
    for (int r = 0; r < plan_.ranks; ++r) {
      for (const Lane& lane : plan_.programs[r]) {
        for (const Step& step : lane) {
          for (const Place& place : step.to) {
            if (place.rank != r) return machine_.sharedMemory->arrival;
          }
        }
      }
    }
    return 0;
  }

  double bytesOf(const Step& step) const {
    return static_cast<double>(bytes_) / plan_.chunks / units_ * step.count;
  }

  /// Whether all that a step moves is in the memory of its host.
  bool isShared(const Step& step, int rank) const {
    if (!machine_.sharedMemory || machine_.topology) return false;
    const int host = rank / machine_.ranksPerHost;
    for (const auto* places : {&step.from, &step.to}) {
      for (const Place& place : *places) {
        if (place.rank / machine_.ranksPerHost != host) return false;
      }
    }
    return true;
  }

  double moveShared(const Step& step, int rank, double start) {
    const SharedMemory& memory = *machine_.sharedMemory;
    const double bytes = bytesOf(step);
    const bool reduces = step.from.size() > 1;
    double perByte = 0;
    for (const Place& place : step.from) {
      const bool isScratch = place.buffer == Buffer::Scratch;
      // A copy pays for what it writes; so does a reduction, in what it reads.
      if (isScratch) perByte += 1 / memory.readBandwidth;
      if (!isScratch) perByte += secondsPerUserByte_;
      if (reduces) perByte += 1 / machine_.reduceBandwidth;
    }
    for (const Place& place : step.to) {
      const bool isScratch = place.buffer == Buffer::Scratch;
      if (isScratch) {
        perByte += 1 / memory.writeBandwidth;
      } else if (!reduces || step.to.size() > 1) {
        perByte += 1 / machine_.copyBandwidth + secondsPerUserByte_;
      } else {
        perByte += secondsPerUserByte_;
      }
    }
    const double end = start + bytes * perByte * slowness_[rank];
    for (const auto* places : {&step.from, &step.to}) {
      for (const Place& place : *places) {
        if (place.rank == rank) continue;
        const auto [from, to] =
            places == &step.from ? std::pair{place.rank, rank} : std::pair{rank, place.rank};
        timeline_.transfers.push_back({from, to, static_cast<size_t>(bytes), start, end});
      }
    }
    return end;
  }

  double move(State& lane, const Step& step, double now) {
    const int rank = lane.id.rank;
    const double bytes = bytesOf(step);
    double ready = now;
    for (const Place& place : step.from) {
      if (place.rank != rank) ready = std::max(ready, transfer(place.rank, rank, bytes, now).there);
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
        const Sent sent = transfer(rank, place.rank, bytes, now);
        lane.delivered[place.rank] = std::max(lane.delivered[place.rank], sent.there);
        now = sent.left;
      }
    }
    for (const auto* places : {&step.from, &step.to}) {
      for (const Place& place : *places) {
        if (place.buffer != Buffer::Scratch) now += bytes * secondsPerUserByte_ * slowness_[rank];
      }
    }
    return now;
  }

  /// From a rank to a rank: the links to go through, each with its bytes per second.
  struct Way {
    std::vector<std::pair<Resource*, double>> links;
    double latency;
  };
  struct Ways {
    std::vector<Way> all;
    double overhead;
    double factor;  // of the time, if the link is slow
  };

  Ways& waysOf(int from, int to) {
    const auto [at, added] = ways_.try_emplace({from, to});
    Ways& ways = at->second;
    if (!added) return ways;
    ways.factor = 1;
    for (const auto& slow : machine_.slowLinks) {
      if (slow.from == from && slow.to == to) ways.factor *= slow.factor;
    }
    ways.overhead = machine_.local.overhead;
    if (machine_.topology) {
      addRoutes(ways, from, to);
      return ways;
    }
    const int g = machine_.ranksPerHost;
    const bool isLocal = from / g == to / g;
    const LinkCost& cost = isLocal ? machine_.local : machine_.network;
    const auto end = [&](int rank, const char* way) {
      const std::string name = isLocal ? "rank " + std::to_string(rank)
                                       : "host " + std::to_string(rank / g) + " card " +
                                             std::to_string(rank % g % machine_.cardsPerHost);
      return std::pair{&resource(name + way), cost.bandwidth};
    };
    ways.overhead = cost.overhead;
    ways.all.push_back({{end(from, " out"), end(to, " in")}, cost.latency});
    return ways;
  }

  void addRoutes(Ways& ways, int from, int to) {
    const Topology& topology = *machine_.topology;
    std::vector<Route> routes;
    const auto given = machine_.routes.find({from, to});
    if (given != machine_.routes.end()) {
      routes = given->second;
    } else {
      routes.push_back({shortestRoute(topology, from, to)});
    }
    for (const Route& route : routes) {
      Way& way = ways.all.emplace_back();
      way.latency = topology.latency * static_cast<double>(route.nodes.size() - 1);
      for (size_t i = 1; i < route.nodes.size(); ++i) {
        const int a = route.nodes[i - 1], b = route.nodes[i];
        way.links.emplace_back(&resource(topology.nameOf(a) + " -> " + topology.nameOf(b)),
                               static_cast<double>(capacity_[a][b]) * 1e6);
      }
    }
  }

  double latency(int from, int to) {
    const Ways& ways = waysOf(from, to);
    return ways.all[0].latency * ways.factor;
  }

  Resource& resource(const std::string& name) { return resources_[name]; }

  struct Sent {
    double left, there;  ///< when the last byte has left the sender; when it is there
  };
  /// Each link is theirs as soon as it is free and their first byte has come to it; a switch keeps
  /// what cannot go on yet.
  Sent transfer(int from, int to, double bytes, double now) {
    Ways& ways = waysOf(from, to);
    const double earliest = now + ways.overhead * slowness_[from];
    const auto go = [&](const Way& way, const auto& visit) {
      double begin = earliest, end = earliest;
      for (const auto& [link, bandwidth] : way.links) {
        const double time = bytes / bandwidth * ways.factor;
        begin = std::max(begin, link->free);
        end = std::max(end, begin + time);
        visit(*link, begin, time);
      }
      return end + way.latency * ways.factor;
    };
    const Way* best = &ways.all.front();
    double there = kNever, start = kNever, left = kNever;
    for (const Way& way : ways.all) {
      const double end = go(way, [](const Resource&, double, double) {});
      if (end < there) best = &way;
      there = std::min(there, end);
    }
    go(*best, [&](Resource& link, double begin, double time) {
      start = std::min(start, begin);
      left = std::min(left, begin + time);
      link.free = begin + time;
      link.busy += time;
    });
    timeline_.transfers.push_back({from, to, static_cast<size_t>(bytes), start, there});
    return {left, there};
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
  double secondsPerUserByte_ = 0;
  std::vector<State> lanes_;
  std::vector<std::deque<double>> signals_;  // per channel: when those not yet taken are there
  std::map<std::string, Resource> resources_;
  std::vector<Resource*> threads_;  // per rank, if its lanes share one
  std::map<std::pair<int, int>, Ways> ways_;
  std::vector<std::vector<int64_t>> capacity_;  // of the topology's links
  std::vector<size_t> firstLane_;               // per rank
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
  Timeline timeline_;
};

}  // namespace

Timeline simulate(const Plan& plan, const Machine& machine, size_t bytes, int units) {
  check(plan);
  if (units < 1) {
    throw Error(ErrorKind::InvalidArgument, std::to_string(units) + " units make no data");
  }
  constexpr size_t kMostSteps = 1 << 22;  // a few hundred MB
  if (plan.stepCount() > kMostSteps / units) {
    throw Error(ErrorKind::InvalidArgument,
                std::to_string(plan.stepCount()) + " steps in " + std::to_string(units) +
                    " units are more than " + std::to_string(kMostSteps) +
                    ", which is too many to simulate: take fewer units");
  }
  return Simulation(plan, machine, bytes, units).run();
}

}  // namespace ctran::plan
