#include "ctran/plan/mscclpp/counters.h"

#include <algorithm>
#include <map>

#include "ctran/plan/clocks.h"

namespace ctran::plan::mscclpp {
namespace {

/// One execution of a plan, and what came before what in it.
class Order {
 public:
  explicit Order(const Plan& plan) : plan_(plan) {
    firstLane_.push_back(0);
    for (const auto& lanes : plan.programs) {
      firstLane_.push_back(firstLane_.back() + static_cast<int>(lanes.size()));
    }
  }

  /// `mayStep` is asked before each step, and `stepped` told after it.
  template <class MayStep, class Stepped>
  void run(MayStep mayStep, Stepped stepped) {
    Clocks clocks(plan_.channels, firstLane_);
    known_.assign(firstLane_.back(), {});
    std::vector<size_t> waited(firstLane_.back(), 0);  // waits of a lane's step that are over
    bool moved = true;
    while (moved) {
      moved = false;
      for (int rank = 0; rank < plan_.ranks; ++rank) {
        for (int lane = 0; lane < static_cast<int>(plan_.programs[rank].size()); ++lane) {
          while (advance(clocks, {rank, lane}, waited, mayStep, stepped)) moved = true;
        }
      }
    }
  }

  bool hasRun(const Use& use) const { return known_[number(use.lane)].size() > use.step; }

  bool isBefore(const Use& first, const Use& then) const {
    if (first.lane == then.lane) return first.step < then.step;
    return hasRun(then) && known_[number(then.lane)][then.step][number(first.lane)] > first.step;
  }

 private:
  int number(LaneId id) const { return firstLane_[id.rank] + id.lane; }

  template <class MayStep, class Stepped>
  bool advance(Clocks& clocks, LaneId id, std::vector<size_t>& waited, MayStep& mayStep,
               Stepped& stepped) {
    const Lane& lane = plan_.lane(id);
    auto& known = known_[number(id)];
    if (known.size() == lane.size()) return false;
    const Step& step = lane[known.size()];
    for (size_t& next = waited[number(id)]; next < step.waits.size(); ++next) {
      if (!clocks.arrived(step.waits[next])) return false;
      clocks.wait(step.waits[next], number(id));
    }
    if (!mayStep(id, known.size())) return false;
    clocks.beginStep(number(id));
    for (const int signal : step.signals) clocks.signal(signal, number(id));
    stepped(id, known.size());
    known.push_back(clocks.clock(number(id)));
    waited[number(id)] = 0;
    return true;
  }

  const Plan& plan_;
  std::vector<int> firstLane_;
  std::vector<std::vector<Clocks::Clock>> known_;  // [lane][step]: steps that came before its end
};

bool isSame(const Use& a, const Use& b) { return a.lane == b.lane && a.step == b.step; }

/// The signals that a wait needs: its own, and those of the waits that come before it.
int neededAtLeast(const Counter& counter, const Use& wait, const Order& order) {
  const auto before = [&](const Use& other) { return order.isBefore(other, wait); };
  return 1 + static_cast<int>(std::count_if(counter.waits.begin(), counter.waits.end(), before));
}

/// The same if all waits that are not ordered with it come first.
int neededAtMost(const Counter& counter, const Use& wait, const Order& order) {
  const auto mayBeBefore = [&](const Use& other) { return !order.isBefore(wait, other); };
  return static_cast<int>(std::count_if(counter.waits.begin(), counter.waits.end(), mayBeBefore));
}

/// Whether `signal` must have come when `wait` ends.
bool isCertain(const Counter& counter, const Use& signal, const Use& wait, const Order& order) {
  const int without = static_cast<int>(
      std::count_if(counter.signals.begin(), counter.signals.end(), [&](const Use& other) {
        return !isSame(other, signal) && !order.isBefore(signal, other) &&
               !order.isBefore(wait, other);
      }));
  return counter.credits + without < neededAtLeast(counter, wait, order);
}

/// Adds a channel for each signal that must have come, and of which the wait does not know yet.
bool addCertain(Plan& plan, const Counter& counter, const Order& order) {
  bool added = false;
  for (const Use& wait : counter.waits) {
    if (!order.hasRun(wait)) continue;
    for (const Use& signal : counter.signals) {
      if (signal.lane == wait.lane || order.isBefore(signal, wait) ||
          !isCertain(counter, signal, wait, order)) {
        continue;
      }
      const int channel = static_cast<int>(plan.channels.size());
      plan.channels.push_back({signal.lane, wait.lane, 0});
      plan.lane(signal.lane)[signal.step].signals.push_back(channel);
      plan.lane(wait.lane)[wait.step].waits.push_back({channel, 1});
      added = true;
    }
  }
  return added;
}

/// A wait that does not end when the counters count.
std::optional<Use> findStuck(const Plan& plan, const std::vector<Counter>& counters,
                             const Order& order) {
  std::vector<int> count;
  std::map<std::pair<LaneId, size_t>, std::vector<std::pair<size_t, int>>>
      needs;  // counter, signals
  std::map<std::pair<LaneId, size_t>, std::vector<size_t>> gives;
  for (size_t i = 0; i < counters.size(); ++i) {
    count.push_back(counters[i].credits);
    for (const Use& wait : counters[i].waits) {
      needs[{wait.lane, wait.step}].emplace_back(i, neededAtMost(counters[i], wait, order));
    }
    for (const Use& signal : counters[i].signals) gives[{signal.lane, signal.step}].push_back(i);
  }
  Order counting(plan);
  counting.run(
      [&](LaneId lane, size_t step) {
        const auto needed = needs.find({lane, step});
        return needed == needs.end() ||
               std::all_of(needed->second.begin(), needed->second.end(),
                           [&](const auto& need) { return count[need.first] >= need.second; });
      },
      [&](LaneId lane, size_t step) {
        const auto given = gives.find({lane, step});
        if (given == gives.end()) return;
        for (const size_t counter : given->second) ++count[counter];
      });
  for (const Counter& counter : counters) {
    for (const Use& wait : counter.waits) {
      if (order.hasRun(wait) && !counting.hasRun(wait)) return wait;
    }
  }
  return std::nullopt;
}

}  // namespace

Counted settleCounters(Plan& plan, const std::vector<Counter>& counters) {
  Counted counted;
  if (counters.empty()) return counted;
  const auto always = [](LaneId, size_t) { return true; };
  const auto ignore = [](LaneId, size_t) {};
  bool more = true;
  while (more) {
    Order order(plan);
    order.run(always, ignore);
    more = false;
    for (const Counter& counter : counters) more |= addCertain(plan, counter, order);
  }
  Order order(plan);
  order.run(always, ignore);
  counted.stuck = findStuck(plan, counters, order);
  for (const Counter& counter : counters) {
    counted.contended.push_back(false);
    for (const Use& wait : counter.waits) {
      if (neededAtLeast(counter, wait, order) == neededAtMost(counter, wait, order)) continue;
      if (!counted.unordered) counted.unordered = wait;
      counted.contended.back() = true;
    }
  }
  return counted;
}

}  // namespace ctran::plan::mscclpp
