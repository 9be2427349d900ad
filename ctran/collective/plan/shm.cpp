#include "ctran/collective/plan/shm.h"

#include <optional>

#include "ctran/collective/plan/algorithm.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

using plan::Buffer;
using plan::LaneId;
using plan::Place;

constexpr size_t kScratchBytes = Arena::kRingBytes;

/// How the data of a call is divided: into blocks, these into parts, these into units, of which one
/// is moved in each execution.
class Layout {
 public:
  Layout(const plan::Plan& plan, size_t count, size_t element)
      : parts_(count, plan.chunks, element), element_(element) {
    size_t largest = 0;
    for (int k = 0; k < plan.chunks; ++k) largest = std::max(largest, parts_.size(k));
    const size_t slots = std::max<size_t>(1, static_cast<size_t>(plan.scratch) * plan.depth);
    stride_ = kScratchBytes / slots / 64 * 64;
    // About eight units, so that lanes and ranks overlap; not below 8 KB.
    const size_t wanted = std::max<size_t>(largest * element / 8, 8192);
    const size_t bytes = std::min(stride_, (wanted + 63) / 64 * 64);
    unit_ = std::max<size_t>(1, bytes / element);
    units_ = (largest + unit_ - 1) / unit_;
  }

  uint64_t units() const { return units_; }
  size_t stride() const { return stride_; }  ///< bytes of a chunk of scratch

  /// Elements of the unit that belong to the part, and where they begin in the block.
  size_t count(int part, uint64_t unit) const {
    return std::min(unit_, parts_.size(part) - std::min(parts_.size(part), unit * unit_));
  }
  size_t offsetBytes(int part, uint64_t unit) const {
    return (parts_.begin(part) + unit * unit_) * element_;
  }

 private:
  Partition parts_;
  size_t element_;
  size_t stride_, unit_;
  uint64_t units_;
};

/// A plan in execution on one rank.
class PlanRun {
 public:
  PlanRun(ShmContext& shm, const Collective& c)
      : shm_(shm),
        c_(c),
        algorithm_(*c.plan),
        plan_(c.plan->plan()),
        element_(sizeOf(c.type)),
        layout_(plan_, c.count, element_),
        self_(virtualRank(shm.rank)),
        begin_(shm.firstSignal()),
        lanes_(plan_.programs[self_].size()),
        blocked_(lanes_.size()),
        sources_(algorithm_.mostSources()) {
    if (c.kind == CollectiveKind::AllReduce || c.kind == CollectiveKind::ReduceScatter) {
      ReduceKind kind = c.op.kind;
      complete_ = reduceFn(kind, c.type);
      if (kind == ReduceKind::Avg) kind = ReduceKind::Sum;
      partial_ = reduceFn(kind, c.type);
    }
    placeInput();
  }

  /// Goes on until every lane waits; whether all have ended.
  bool advance() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t l = 0; l < lanes_.size(); ++l) moved |= step(static_cast<int>(l));
    }
    return waiting_ == 0;
  }

  /// What the lanes wait for.
  Condition blocked() const { return Condition::any(blocked_.data(), waiting_); }

  uint64_t signals() const { return layout_.units() * algorithm_.mostPerExecution(); }

 private:
  struct LaneState {
    uint64_t unit = 0;
    size_t step = 0;
    size_t wait = 0;  // of the step
  };

  /// A broadcast from another root than the plan's is one in which all ranks have other numbers.
  int virtualRank(int rank) const { return shifted(rank, plan_.root - c_.root); }
  int realRank(int rank) const { return shifted(rank, c_.root - plan_.root); }
  int shifted(int rank, int by) const {
    if (plan_.kind != CollectiveKind::Broadcast) return rank;
    return (rank + by + shm_.size) % shm_.size;
  }

  /// Does a step of the lane, or notes what it waits for. Lanes are looked at in their order, so
  /// that `blocked_` is right when none has moved.
  bool step(int lane) {
    if (lane == 0) waiting_ = 0;
    LaneState& state = lanes_[lane];
    const plan::Lane& steps = plan_.programs[self_][lane];
    if (steps.empty() || state.unit == layout_.units()) return false;
    const auto& prepared = algorithm_.step({self_, lane}, state.step);
    for (; state.wait < prepared.waits.size(); ++state.wait) {
      const auto& wait = prepared.waits[state.wait];
      const int64_t number =
          static_cast<int64_t>(state.unit) * algorithm_.perExecution(wait.channel) + wait.number;
      if (number <= 0) continue;  // a credit
      Condition condition = shm_.arena.signalled(realRank(plan_.channels[wait.channel].from.rank),
                                                 algorithm_.counter(wait.channel), begin_ + number);
      if (condition.holds()) continue;
      blocked_[waiting_++] = condition;
      return false;
    }
    const plan::Step& step = steps[state.step];
    for (int i = 0; i < step.count && step.moves(); ++i) {
      move(step, state.unit, i, prepared.completes);
    }
    for (const auto& signal : prepared.signals) {
      const uint64_t number = state.unit * algorithm_.perExecution(signal.channel) + signal.number;
      shm_.arena.signal(shm_.rank, algorithm_.counter(signal.channel))
          .store(begin_ + number, std::memory_order_release);
    }
    if (!prepared.signals.empty()) shm_.arena.published();
    state.wait = 0;
    if (++state.step == steps.size()) {
      state.step = 0;
      ++state.unit;
    }
    return true;
  }

  std::byte* at(const Place& place, int offset, int part, uint64_t unit) const {
    const int index = place.index + offset;
    if (place.buffer == Buffer::Scratch) {
      const size_t slot = unit % plan_.depth * plan_.scratch + index;
      return shm_.arena.ring(realRank(place.rank), 0) + slot * layout_.stride();
    }
    const int block = index / plan_.chunks;
    std::byte* data = place.buffer == Buffer::Input ? inputBlock(block) : outputBlock(block);
    return data + layout_.offsetBytes(part, unit);
  }

  void move(const plan::Step& step, uint64_t unit, int offset, bool completes) {
    const int part = (step.part + offset) % plan_.chunks;
    const size_t count = layout_.count(part, unit);
    if (count == 0) return;
    std::byte* first = at(step.to[0], offset, part, unit);
    for (size_t s = 0; s < step.from.size(); ++s) {
      sources_[s] = at(step.from[s], offset, part, unit);
    }
    if (step.from.size() == 1) {
      copyBlock(first, sources_[0], count * element_);
    } else {
      (completes ? complete_ : partial_)(first, sources_.data(), static_cast<int>(step.from.size()),
                                         count, shm_.size);
    }
    for (size_t t = 1; t < step.to.size(); ++t) {
      copyBlock(at(step.to[t], offset, part, unit), first, count * element_);
    }
  }

  std::byte* inputBlock(int block) const {
    if (!copy_.empty()) return const_cast<std::byte*>(copy_.data()) + block * c_.blockBytes();
    return c_.inputBlock(block).data;
  }
  std::byte* outputBlock(int block) const { return c_.outputBlock(block).data; }

  /// The block of the output that is an input block's place in a call in place.
  std::byte* ownPlace(int block) const {
    if (plan_.kind == CollectiveKind::AllGather) return outputBlock(shm_.rank);
    if (plan_.kind == CollectiveKind::ReduceScatter)
      return block == shm_.rank ? c_.output : nullptr;
    return outputBlock(block);
  }

  /// Brings input and output into the relation that the plan is written for. That concerns nobody
  /// but this rank.
  void placeInput() {
    if (plan_.kind == CollectiveKind::Broadcast) return;
    const int blocks = plan_.blocks(Buffer::Input);
    bool inPlace = false;
    for (int b = 0; b < blocks; ++b) {
      if (plan_.inPlace) {
        copyBlock(ownPlace(b), c_.inputBlock(b).data, c_.blockBytes());
      } else {
        inPlace |= c_.count > 0 && ownPlace(b) == c_.inputBlock(b).data;
      }
    }
    if (!inPlace || algorithm_.properties().inPlaceSafe) return;
    copy_.resize(blocks * c_.blockBytes());
    for (int b = 0; b < blocks; ++b) {
      copyBlock(copy_.data() + b * c_.blockBytes(), c_.inputBlock(b).data, c_.blockBytes());
    }
  }

  ShmContext& shm_;
  const Collective& c_;
  const PlanAlgorithm& algorithm_;
  const plan::Plan& plan_;
  const size_t element_;
  const Layout layout_;
  const int self_;
  const uint64_t begin_;  // what the counters stood at, at most
  std::vector<LaneState> lanes_;
  std::vector<Condition> blocked_;
  int waiting_ = 0;
  std::vector<const std::byte*> sources_;
  ReduceFn complete_ = nullptr, partial_ = nullptr;
  std::vector<std::byte> copy_;  // of the input, if it must survive the output
};

}  // namespace

uint64_t unitsOf(const plan::Plan& plan, size_t count, size_t elementBytes) {
  return Layout(plan, count, elementBytes).units();
}

Task runPlan(ShmContext& shm, const Collective& c) {
  co_await shm.slotFree();
  shm.publishSlot();
  // Who is here has ended all before; so the scratch of all ranks is free.
  co_await shm.allArrived();
  shm.checkAll();
  PlanRun run(shm, c);
  while (!run.advance()) co_await run.blocked();
  shm.endSignals(run.signals());
  // Who writes to its ring next waits until all ranks have ended this.
  shm.beginRounds(Arena::kRingBytes / Arena::kRoundBytes, Arena::kRoundBytes);
  shm.endRounds();
}

int planCulprit(ShmContext& shm, const Collective& c, const Condition& waiting) {
  const PlanAlgorithm& algorithm = *c.plan;
  const plan::Plan& plan = algorithm.plan();
  const int shift = plan.kind == CollectiveKind::Broadcast ? c.root - plan.root + shm.size : 0;
  const auto realRank = [&](int rank) { return (rank + shift) % shm.size; };
  const auto given = [&](int channel) -> int64_t {  // signals so far
    const int rank = realRank(plan.channels[channel].from.rank);
    const uint64_t value =
        shm.arena.signal(rank, algorithm.counter(channel)).load(std::memory_order_acquire);
    return value > shm.firstSignal() ? static_cast<int64_t>(value - shm.firstSignal()) : 0;
  };
  const auto numberOf = [&](const PlanAlgorithm::Signal& signal, int64_t unit) {
    return unit * algorithm.perExecution(signal.channel) + signal.number;
  };

  std::optional<int> channel;
  for (int i = 0; i < static_cast<int>(plan.channels.size()); ++i) {
    const Condition of =
        shm.arena.signalled(realRank(plan.channels[i].from.rank), algorithm.counter(i), 0);
    if (of.rank == waiting.rank && of.base == waiting.base) channel = i;
  }
  if (!channel) return waiting.rank;  // it waits for ranks to come
  int64_t needed = static_cast<int64_t>(waiting.target - shm.firstSignal());
  for (size_t hops = 0; hops <= plan.channels.size(); ++hops) {
    // The producer's steps up to the one that gives the signal: has one of them to wait?
    const LaneId lane = plan.channels[*channel].from;
    const auto& steps = plan.lane(lane);
    const int64_t unit = (needed - 1) / algorithm.perExecution(*channel);
    std::optional<int> next;
    for (size_t s = 0; s < steps.size() && !next; ++s) {
      const auto& step = algorithm.step(lane, s);
      for (const auto& wait : step.waits) {
        if (numberOf(wait, unit) <= given(wait.channel)) continue;
        next = wait.channel;
        needed = numberOf(wait, unit);
        break;
      }
      for (const auto& signal : step.signals) {
        if (signal.channel == *channel && numberOf(signal, unit) >= needed && !next) {
          return realRank(lane.rank);
        }
      }
    }
    if (!next) return realRank(lane.rank);
    channel = next;
  }
  return waiting.rank;
}

}  // namespace ctran
