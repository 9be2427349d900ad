#include "ctran/collective/plan/messages.h"

#include <algorithm>

namespace ctran {
namespace {

// A message's number: whether it is an answer, its lane, how many of that came before.
constexpr uint32_t kAnswer = uint32_t{1} << 31;
constexpr int kLaneShift = 24;
constexpr size_t kMaxLanes = 128;
constexpr uint64_t kMaxMessages = uint64_t{1} << kLaneShift;

/// Messages of a lane elsewhere that are received ahead, so that large ones need not wait for a
/// round trip.
constexpr size_t kMessagesAhead = 4;

constexpr std::byte kSignal{1};

uint32_t laneMessage(int lane, uint32_t number) {
  return static_cast<uint32_t>(lane) << kLaneShift | number;
}

}  // namespace

bool PlanMessages::canDo(const PlanAlgorithm& algorithm, uint64_t units) {
  uint64_t most = 0;
  for (const auto& lanes : algorithm.plan().programs) {
    if (lanes.size() > kMaxLanes) return false;
    for (const plan::Lane& lane : lanes) {
      uint64_t messages = 0;
      for (const plan::Step& step : lane) {
        messages += 2 + static_cast<uint64_t>(step.count) * (step.to.size() + step.from.size());
      }
      most = std::max(most, messages);
    }
  }
  return most == 0 || units < kMaxMessages / most;
}

PlanMessages::PlanMessages(NetContext& net, const HostMap& map, const PlanAlgorithm& algorithm,
                           const PlanMemory& memory)
    : net_(net),
      map_(map),
      algorithm_(algorithm),
      memory_(memory),
      signals_(algorithm.plan().channels.size()) {
  const plan::Plan& plan = memory.plan();
  const int self = memory.self();
  for (int l = 0; l < static_cast<int>(plan.programs[self].size()); ++l) {
    auto& steps = own_.emplace_back();
    for (size_t s = 0; s < plan.programs[self][l].size(); ++s) {
      steps.push_back(trafficOf({self, l}, s));
    }
    LaneState& state = laneOf_.emplace_back();
    state.sent.resize(plan.ranks);
    state.asked.resize(plan.ranks);
  }
  for (int r = 0; r < plan.ranks; ++r) {
    if (isNear(r, self)) continue;
    for (int l = 0; l < static_cast<int>(plan.programs[r].size()); ++l) {
      Stream stream;
      stream.lane = {r, l};
      for (size_t s = 0; s < plan.programs[r][l].size(); ++s) {
        for (Traffic& traffic : trafficOf(stream.lane, s)) {
          if (traffic.rank == self) stream.steps.push_back(std::move(traffic));
        }
      }
      if (!stream.steps.empty()) streams_.push_back(std::move(stream));
    }
  }
  for (Stream& stream : streams_) {
    expectMore(stream);
    if (!stream.expected.empty()) ++live_;
  }
}

/// What a step has with each rank that is not near the one that does it.
std::vector<PlanMessages::Traffic> PlanMessages::trafficOf(plan::LaneId lane, size_t index) const {
  const plan::Step& step = memory_.plan().lane(lane)[index];
  const PlanAlgorithm::Step& prepared = algorithm_.step(lane, index);
  std::vector<Traffic> all;
  const auto with = [&](int rank) -> Traffic& {
    for (Traffic& traffic : all) {
      if (traffic.rank == rank) return traffic;
    }
    return all.emplace_back(Traffic{rank, index, &step, &prepared, {}, {}, {}, true});
  };
  for (size_t i = 0; i < step.from.size() && step.moves(); ++i) {
    if (!isNear(step.from[i].rank, lane.rank)) with(step.from[i].rank).gets.push_back(i);
  }
  for (size_t i = 0; i < step.to.size(); ++i) {
    if (!isNear(step.to[i].rank, lane.rank)) with(step.to[i].rank).puts.push_back(i);
  }
  for (const auto& signal : prepared.signals) {
    const int rank = memory_.plan().channels[signal.channel].to.rank;
    if (!isNear(rank, lane.rank)) with(rank).signals.push_back(signal);
  }
  for (Traffic& traffic : all) {
    traffic.alone = std::all_of(all.begin(), all.end(), [&](const Traffic& other) {
      return &other == &traffic || other.puts.empty();
    });
  }
  return all;
}

bool PlanMessages::hasPieces(const Traffic& traffic, const std::vector<size_t>& places,
                             uint64_t unit) const {
  for (int i = 0; i < traffic.does->count && !places.empty(); ++i) {
    if (memory_.bytes(*traffic.does, i, unit) > 0) return true;
  }
  return false;
}

// --- Steps of this rank --------------------------------------------------------------------------

void PlanMessages::ask(int lane, size_t step, uint64_t unit) {
  LaneState& state = laneOf_[lane];
  for (const Traffic& traffic : own_[lane][step]) {
    if (!hasPieces(traffic, traffic.gets, unit)) continue;
    for (int i = 0; i < traffic.does->count; ++i) {
      const size_t bytes = memory_.bytes(*traffic.does, i, unit);
      if (bytes == 0) continue;
      for (const size_t source : traffic.gets) {
        std::byte* const data = staging(lane, bytes);
        state.answers[{i, source}] = data;
        const uint32_t name = laneMessage(lane, state.asked[traffic.rank]++) | kAnswer;
        state.arriving.push_back(net_.receive(memory_.real(traffic.rank), name, data, bytes));
      }
    }
    sendByte(lane, traffic.rank);
  }
}

bool PlanMessages::hasAnswers(int lane, Condition& waiting) {
  auto& arriving = laneOf_[lane].arriving;
  for (; !arriving.empty(); arriving.pop_front()) {
    waiting = arriving.front().condition();
    if (!waiting.holds()) return false;
    arriving.front().check();
  }
  return true;
}

std::byte* PlanMessages::staging(int lane, size_t bytes) {
  return laneOf_[lane].memory.emplace_back(bytes).data();
}

void PlanMessages::put(int lane, int rank, const std::byte* data, size_t bytes) {
  LaneState& state = laneOf_[lane];
  const uint32_t name = laneMessage(lane, state.sent[rank]++);
  state.leaving.push_back(net_.send(memory_.real(rank), name, data, bytes));
}

void PlanMessages::sendByte(int lane, int rank) { put(lane, rank, &kSignal, 1); }

void PlanMessages::endPuts(int lane, size_t step, uint64_t unit) {
  for (const Traffic& traffic : own_[lane][step]) {
    if (traffic.alone && hasByte(traffic, unit)) sendByte(lane, traffic.rank);
  }
}

bool PlanMessages::hasLeft(int lane, Condition& waiting) {
  LaneState& state = laneOf_[lane];
  for (; !state.leaving.empty(); state.leaving.pop_front()) {
    waiting = state.leaving.front().condition();
    if (!waiting.holds()) return false;
    state.leaving.front().check();
  }
  state.answers.clear();
  state.memory.clear();
  return true;
}

void PlanMessages::endStep(int lane, size_t step, uint64_t unit) {
  LaneState& state = laneOf_[lane];
  for (const Traffic& traffic : own_[lane][step]) {
    if (!traffic.alone && hasByte(traffic, unit)) sendByte(lane, traffic.rank);
  }
  std::move(state.leaving.begin(), state.leaving.end(), std::back_inserter(loose_));
  state.leaving.clear();
}

Condition PlanMessages::signalled(int channel, uint64_t number) {
  const int rank = memory_.real(memory_.plan().channels[channel].from.rank);
  return {reinterpret_cast<const std::byte*>(&signal(channel)), 0, number, rank, rank + 1};
}

// --- What others do ------------------------------------------------------------------------------

/// Binds memory to the messages of the next steps.
void PlanMessages::expectMore(Stream& stream) {
  const uint64_t units = memory_.layout().units();
  while (stream.expected.size() < kMessagesAhead && stream.unit < units) {
    expect(stream, stream.steps[stream.next], stream.unit);
    if (++stream.next < stream.steps.size()) continue;
    stream.next = 0;
    ++stream.unit;
  }
}

void PlanMessages::expect(Stream& stream, const Traffic& traffic, uint64_t unit) {
  const int rank = memory_.real(stream.lane.rank);
  const size_t before = stream.expected.size();
  const auto message = [&](std::byte* data, size_t bytes, const Traffic* asks) {
    const uint32_t name = laneMessage(stream.lane.lane, stream.received++);
    stream.expected.push_back({net_.receive(rank, name, data, bytes), asks, nullptr, unit});
  };
  if (hasPieces(traffic, traffic.gets, unit)) message(&ignored_, 1, &traffic);
  for (int i = 0; i < traffic.does->count && !traffic.puts.empty(); ++i) {
    const size_t bytes = memory_.bytes(*traffic.does, i, unit);
    if (bytes == 0) continue;
    for (const size_t place : traffic.puts) {
      message(memory_.at(*traffic.does, traffic.does->to[place], i, unit), bytes, nullptr);
    }
  }
  if (hasByte(traffic, unit)) message(&ignored_, 1, nullptr);
  if (stream.expected.size() > before) stream.expected.back().signals = &traffic;
}

bool PlanMessages::advance() {
  bool moved = false;
  for (Stream& stream : streams_) {
    bool came = false;
    while (!stream.expected.empty()) {
      Expected& first = stream.expected.front();
      if (!first.arrival.condition().holds()) break;
      first.arrival.check();
      if (first.asks != nullptr) answer(stream, *first.asks, first.unit);
      if (first.signals != nullptr) {
        for (const auto& given : first.signals->signals) {
          const uint64_t number =
              first.unit * algorithm_.perExecution(given.channel) + given.number;
          signal(given.channel).store(number, std::memory_order_release);
        }
      }
      stream.expected.pop_front();
      expectMore(stream);
      came = true;
    }
    if (came && stream.expected.empty()) --live_;
    moved |= came;
  }
  moved |= std::erase_if(loose_, [](const Dispatch& dispatch) {
             if (!dispatch.condition().holds()) return false;
             dispatch.check();
             return true;
           }) > 0;
  return moved;
}

void PlanMessages::answer(Stream& stream, const Traffic& traffic, uint64_t unit) {
  for (int i = 0; i < traffic.does->count; ++i) {
    const size_t bytes = memory_.bytes(*traffic.does, i, unit);
    if (bytes == 0) continue;
    for (const size_t source : traffic.gets) {
      const uint32_t name = laneMessage(stream.lane.lane, stream.answered++) | kAnswer;
      const std::byte* data = memory_.at(*traffic.does, traffic.does->from[source], i, unit);
      loose_.push_back(net_.send(memory_.real(stream.lane.rank), name, data, bytes));
    }
  }
}

void PlanMessages::addConditions(std::vector<Condition>& conditions) const {
  for (const Stream& stream : streams_) {
    if (!stream.expected.empty()) {
      conditions.push_back(stream.expected.front().arrival.condition());
    }
  }
  for (const Dispatch& dispatch : loose_) conditions.push_back(dispatch.condition());
}

}  // namespace ctran
