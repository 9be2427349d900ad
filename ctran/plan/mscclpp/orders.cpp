#include "ctran/plan/mscclpp/orders.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "ctran/plan/clocks.h"

namespace ctran::plan::mscclpp {
namespace {

/// A run of a plan, in which lanes take turns where the order matters.
class OrderedRun {
 public:
  OrderedRun(Plan& plan, const std::vector<Counter>& counters, const std::vector<bool>& contended)
      : plan_(plan), run_(plan), counters_(counters), contended_(contended) {
    firstLane_.push_back(0);
    for (int rank = 0; rank < plan.ranks; ++rank) {
      for (int lane = 0; lane < static_cast<int>(plan.programs[rank].size()); ++lane) {
        lanes_.push_back({{rank, lane}});
      }
      firstLane_.push_back(static_cast<int>(lanes_.size()));
    }
    for (LaneState& lane : lanes_) lane.steps.resize(run_.lane(lane.id).size());
    states_.resize(counters.size());
    for (size_t c = 0; c < counters.size(); ++c) noteUses(static_cast<int>(c));
    findGroups();
  }

  std::optional<Use> run(Choices& choices) {
    Clocks clocks(run_.channels, firstLane_);
    clocks_ = &clocks;
    while (true) {
      bool moved = true;
      while (moved) {
        moved = false;
        for (LaneState& lane : lanes_) {
          while (!isContended(lane) && canGoOn(lane)) {
            goOn(lane);
            moved = true;
          }
        }
      }
      const std::vector<LaneState*> next = candidates();
      if (next.empty()) return stuck();
      goOn(*next[choices.next(next.size())]);
    }
  }

 private:
  struct StepUses {
    std::vector<int> waits, signals;  // of counters
  };
  struct LaneState {
    LaneId id;
    std::vector<StepUses> steps = {};
    size_t step = 0;
    size_t channels = 0, counters = 0;  // waits of the step that are over
    int group = 0;                      // of lanes that use the same contended counters
    int contendedUses = 0;              // that are left
  };
  struct Given {
    Use signal;
    Clocks::Clock clock;
  };
  struct CounterState {
    std::vector<Given> given;
    int taken = 0;
    bool waitsCompete = false, signalsCompete = false;
  };

  LaneState& laneOf(const Use& use) { return lanes_[firstLane_[use.lane.rank] + use.lane.lane]; }

  void noteUses(int counter) {
    const Counter& uses = counters_[counter];
    const auto areOfSeveral = [](const std::vector<Use>& list) {
      return std::any_of(list.begin(), list.end(),
                         [&](const Use& use) { return use.lane != list.front().lane; });
    };
    if (contended_[counter]) {
      states_[counter].waitsCompete = areOfSeveral(uses.waits);
      states_[counter].signalsCompete = areOfSeveral(uses.signals);
    }
    for (const Use& use : uses.waits) {
      laneOf(use).steps[use.step].waits.push_back(counter);
      laneOf(use).contendedUses += states_[counter].waitsCompete ? 1 : 0;
    }
    for (const Use& use : uses.signals) {
      laneOf(use).steps[use.step].signals.push_back(counter);
      laneOf(use).contendedUses += states_[counter].signalsCompete ? 1 : 0;
    }
  }

  /// Lanes that use one contended counter, and those that use another one with one of these.
  void findGroups() {
    for (size_t l = 0; l < lanes_.size(); ++l) lanes_[l].group = static_cast<int>(l);
    for (size_t c = 0; c < counters_.size(); ++c) {
      if (!contended_[c]) continue;
      const int group = laneOf(counters_[c].waits.front()).group;
      for (const auto* uses : {&counters_[c].waits, &counters_[c].signals}) {
        for (const Use& use : *uses) {
          const int other = laneOf(use).group;
          for (LaneState& lane : lanes_) {
            if (lane.group == other) lane.group = group;
          }
        }
      }
    }
  }

  bool hasEnded(const LaneState& lane) const { return lane.step == lane.steps.size(); }

  /// The counter that the lane waits on now; -1: none.
  int awaited(const LaneState& lane) const {
    const auto& waits = lane.steps[lane.step].waits;
    return lane.counters < waits.size() ? waits[lane.counters] : -1;
  }

  bool channelsArrived(const LaneState& lane) const {
    const auto& waits = run_.lane(lane.id)[lane.step].waits;
    return lane.channels == waits.size() || clocks_->arrived(waits[lane.channels]);
  }

  /// Whether what the lane does next has to be chosen among others: its channels have been waited
  /// for, then.
  bool isContended(const LaneState& lane) const {
    if (hasEnded(lane)) return false;
    if (lane.channels < run_.lane(lane.id)[lane.step].waits.size()) return false;
    if (const int counter = awaited(lane); counter >= 0) return states_[counter].waitsCompete;
    const auto& signals = lane.steps[lane.step].signals;
    return std::any_of(signals.begin(), signals.end(),
                       [&](int counter) { return states_[counter].signalsCompete; });
  }

  bool canGoOn(const LaneState& lane) const {
    if (hasEnded(lane) || !channelsArrived(lane)) return false;
    if (lane.channels < run_.lane(lane.id)[lane.step].waits.size()) return true;
    const int counter = awaited(lane);
    if (counter < 0) return true;
    const CounterState& state = states_[counter];
    return state.taken < counters_[counter].credits + static_cast<int>(state.given.size());
  }

  /// One wait, or the end of the step.
  void goOn(LaneState& lane) {
    const Step& step = run_.lane(lane.id)[lane.step];
    const int number = clocks_->laneNumber(lane.id);
    if (lane.channels < step.waits.size()) {
      clocks_->wait(step.waits[lane.channels++], number);
      return;
    }
    if (const int counter = awaited(lane); counter >= 0) {
      take(lane, counter);
      ++lane.counters;
      return;
    }
    clocks_->beginStep(number);
    for (const int signal : step.signals) clocks_->signal(signal, number);
    for (const int counter : lane.steps[lane.step].signals) {
      states_[counter].given.push_back({{lane.id, lane.step, {}}, clocks_->clock(number)});
      lane.contendedUses -= states_[counter].signalsCompete ? 1 : 0;
    }
    ++lane.step;
    lane.channels = lane.counters = 0;
  }

  /// The last ones first: they may know of those before.
  void take(LaneState& lane, int counter) {
    CounterState& state = states_[counter];
    const int needed = ++state.taken - counters_[counter].credits;
    if (!contended_[counter]) return;
    lane.contendedUses -= state.waitsCompete ? 1 : 0;
    const int number = clocks_->laneNumber(lane.id);
    for (int i = needed - 1; i >= 0; --i) {
      const auto& [signal, clock] = state.given[i];
      if (clocks_->clock(number)[clocks_->laneNumber(signal.lane)] > signal.step) continue;
      const int channel = static_cast<int>(plan_.channels.size());
      plan_.channels.push_back({signal.lane, lane.id, 0});
      plan_.lane(signal.lane)[signal.step].signals.push_back(channel);
      plan_.lane(lane.id)[lane.step].waits.push_back({channel, 1});
      clocks_->learn(number, clock);
    }
  }

  /// The lanes among which the run chooses. What the lanes of a group do next concerns no other
  /// group, so one group is enough if all its lanes have come to their choices; and it is the same
  /// ones' turn until then.
  std::vector<LaneState*> candidates() {
    std::vector<LaneState*> all;
    std::set<int> open;  // groups of which others may come to a choice
    for (LaneState& lane : lanes_) {
      if (isContended(lane)) {
        if (canGoOn(lane)) all.push_back(&lane);
      } else if (lane.contendedUses > 0) {
        open.insert(lane.group);
      }
    }
    const auto first = std::find_if(
        all.begin(), all.end(), [&](const LaneState* lane) { return !open.contains(lane->group); });
    if (first == all.end()) return all;
    const int group = (*first)->group;
    std::erase_if(all, [&](const LaneState* lane) { return lane->group != group; });
    return all;
  }

  /// A lane that waits on a counter for ever.
  std::optional<Use> stuck() const {
    for (size_t c = 0; c < counters_.size(); ++c) {
      for (const Use& wait : counters_[c].waits) {
        const LaneState& lane = lanes_[firstLane_[wait.lane.rank] + wait.lane.lane];
        if (lane.step == wait.step && channelsArrived(lane) &&
            awaited(lane) == static_cast<int>(c)) {
          return wait;
        }
      }
    }
    return std::nullopt;
  }

  Plan& plan_;
  const Plan run_;  // before channels are added
  const std::vector<Counter>& counters_;
  const std::vector<bool>& contended_;
  std::vector<int> firstLane_;
  std::vector<LaneState> lanes_;
  std::vector<CounterState> states_;
  Clocks* clocks_ = nullptr;
};

}  // namespace

size_t Choices::next(size_t options) {
  if (at_ == choices_.size()) choices_.push_back({0, options});
  return choices_[at_++].taken;
}

bool Choices::advance() {
  at_ = 0;
  while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().options) {
    choices_.pop_back();
  }
  if (choices_.empty()) return false;
  ++choices_.back().taken;
  return true;
}

std::optional<Use> settleOrder(Plan& plan, const std::vector<Counter>& counters,
                               const std::vector<bool>& contended, Choices& choices) {
  return OrderedRun(plan, counters, contended).run(choices);
}

}  // namespace ctran::plan::mscclpp
