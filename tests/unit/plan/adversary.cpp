#include "tests/unit/plan/adversary.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>

#include "tests/unit/support/cases.h"

namespace ctran::plan {
namespace {

using testing::mix;

/// Data: the sum tells which inputs were added, the order how; parts of a block differ in size.
struct Number {
  uint64_t sum = 0, order = 0;
  int part = -1;
  bool packet = false;
};

class Adversary {
 public:
  Adversary(const Plan& plan, int executions, uint64_t seed)
      : plan_(plan), executions_(executions), random_(seed) {
    for (int r = 0; r < plan.ranks; ++r) {
      scratch_.emplace_back(plan.scratch * plan.depth);
      for (auto& number : scratch_.back()) number = {next(), next(), -1, false};
      for (int l = 0; l < static_cast<int>(plan.programs[r].size()); ++l)
        lanes_.push_back({{r, l}});
    }
    for (int e = 0; e < executions; ++e) {
      user_.emplace_back(plan.ranks);
      for (int r = 0; r < plan.ranks; ++r) {
        auto& memory = user_[e][r];
        memory.resize(plan.size(Buffer::Input) + plan.size(Buffer::Output));
        const bool has = plan.kind != CollectiveKind::Broadcast || r == plan.root;
        for (int i = 0; i < plan.size(Buffer::Input) && has; ++i) {
          const bool own = plan.kind == CollectiveKind::AllGather;
          const Place place = plan.inPlace ? Place{r, Buffer::Output, own ? r * plan.chunks + i : i}
                                           : Place{r, Buffer::Input, i};
          at(e, place) = input(e, r, i);
        }
      }
    }
    for (const Channel& channel : plan.channels) arrived_.push_back(channel.credits);
    priorities_.resize(lanes_.size() + 1);
    for (auto& priority : priorities_) priority = next();
  }

  std::string run() {
    while (wrong_.empty()) {
      if (next() % 8 == 0) priorities_[next() % priorities_.size()] = next();
      if (!stepOfBest()) break;
    }
    if (!wrong_.empty()) return wrong_;
    for (const LaneState& lane : lanes_) {
      if (lane.execution < executions_) return "deadlock in " + toText(lane.id, lane.step);
    }
    return check();
  }

 private:
  struct LaneState {
    LaneId id;
    int execution = 0, step = 0;
  };
  struct Delivery {
    int execution;
    Place place;
    Number number;
  };

  uint64_t next() { return random_ = mix(random_ + 0x9e3779b97f4a7c15); }

  Number input(int e, int r, int i) const {
    const uint64_t value = mix(mix(mix(e + 1) + r) + i);
    return {value, value, i % plan_.chunks, false};
  }

  Number& at(int e, const Place& place, int offset = 0) {
    const int index = place.index + offset;
    if (place.buffer == Buffer::Scratch) {
      return scratch_[place.rank][e % plan_.depth * plan_.scratch + index];
    }
    const int first = place.buffer == Buffer::Output ? plan_.size(Buffer::Input) : 0;
    return user_[e][place.rank][first + index];
  }

  /// The lane, or the delivery, that has the highest priority of those that can go on.
  bool stepOfBest() {
    std::vector<size_t> order(priorities_.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return priorities_[a] > priorities_[b]; });
    for (const size_t i : order) {
      if (i == lanes_.size()) {
        for (auto& [way, queue] : underway_) {
          if (queue.empty()) continue;
          deliver(queue);
          return true;
        }
      } else if (advance(lanes_[i])) {
        return true;
      }
    }
    return false;
  }

  void deliver(std::deque<Delivery>& queue) {
    at(queue.front().execution, queue.front().place) = queue.front().number;
    queue.pop_front();
  }

  bool advance(LaneState& state) {
    const Lane& lane = plan_.lane(state.id);
    if (state.execution == executions_) return false;
    if (state.step == static_cast<int>(lane.size())) {
      ++state.execution;
      state.step = 0;
      return true;
    }
    const Step& step = lane[state.step];
    std::map<int, int> needed;
    for (const Wait& wait : step.waits) needed[wait.channel] += wait.count;
    for (const auto& [channel, count] : needed) {
      if (arrived_[channel] < count) return false;
    }
    for (const auto& [channel, count] : needed) arrived_[channel] -= count;
    move(state, step);
    for (const int signal : step.signals) {
      auto& queue = underway_[{state.id, plan_.channels[signal].to.rank}];
      while (!queue.empty()) deliver(queue);
      ++arrived_[signal];
    }
    ++state.step;
    return true;
  }

  void move(const LaneState& state, const Step& step) {
    for (int i = 0; i < step.count && step.moves(); ++i) {
      const int part = (step.part + i) % plan_.chunks;
      Number result;
      for (size_t s = 0; s < step.from.size(); ++s) {
        const Number& source = at(state.execution, step.from[s], i);
        if (source.part != part) wrong_ = toText(state.id, state.step) + " reads another part";
        if (step.from[s].buffer == Buffer::Scratch && source.packet != step.packet) {
          wrong_ = toText(state.id, state.step) + " mistakes packets";
        }
        result.sum += source.sum;
        result.order = s == 0 ? source.order : mix(result.order * 3 + source.order);
      }
      result.part = part;
      for (const Place& place : step.to) {
        result.packet = step.packet && place.buffer == Buffer::Scratch;
        if (place.rank == state.id.rank || step.store) {
          at(state.execution, place, i) = result;
        } else {
          underway_[{state.id, place.rank}].push_back(
              {state.execution, {place.rank, place.buffer, place.index + i}, result});
        }
      }
    }
  }

  std::string check() {
    for (int e = 0; e < executions_; ++e) {
      for (int r = 0; r < plan_.ranks; ++r) {
        for (int i = 0; i < plan_.size(Buffer::Output); ++i) {
          const Number& got = at(e, {r, Buffer::Output, i});
          const int block = i / plan_.chunks, part = i % plan_.chunks;
          uint64_t sum = 0;
          switch (plan_.kind) {
            case CollectiveKind::AllReduce:
              for (int q = 0; q < plan_.ranks; ++q) sum += input(e, q, i).sum;
              if (got.order != at(e, {0, Buffer::Output, i}).order) return "ranks differ";
              break;
            case CollectiveKind::ReduceScatter:
              for (int q = 0; q < plan_.ranks; ++q) sum += input(e, q, r * plan_.chunks + i).sum;
              break;
            case CollectiveKind::AllGather:
              sum = input(e, block, part).sum;
              break;
            case CollectiveKind::AllToAll:
              sum = input(e, block, r * plan_.chunks + part).sum;
              break;
            default:
              sum = input(e, plan_.root, i).sum;
          }
          if (got.sum != sum) return "output[" + std::to_string(i) + "] is wrong";
        }
      }
    }
    return {};
  }

  const Plan& plan_;
  int executions_;
  uint64_t random_;
  std::vector<std::vector<Number>> scratch_;
  std::vector<std::vector<std::vector<Number>>> user_;
  std::vector<LaneState> lanes_;
  std::vector<int> arrived_;
  std::map<std::pair<LaneId, int>, std::deque<Delivery>> underway_;
  std::vector<uint64_t> priorities_;
  std::string wrong_;
};

}  // namespace

std::string runUnkindly(const Plan& plan, int executions, uint64_t seed) {
  return Adversary(plan, executions, seed).run();
}

}  // namespace ctran::plan
