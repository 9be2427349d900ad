#include "ctran/collective/plan/run.h"

#include <algorithm>

#include "ctran/collective/plan/algorithm.h"
#include "ctran/collective/plan/memory.h"
#include "ctran/collective/plan/messages.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// A plan in execution on one rank.
class PlanRun {
 public:
  /// `shm`: with the ranks of this host, null if there are no others; `messages`: to those of
  /// other hosts, null if there are none.
  PlanRun(ShmContext* shm, PlanMessages* messages, const PlanMemory& memory, const Collective& c)
      : shm_(shm),
        messages_(messages),
        memory_(memory),
        algorithm_(*c.plan),
        plan_(c.plan->plan()),
        self_(memory.self()),
        begin_(shm == nullptr ? 0 : shm->firstSignal()),
        lanes_(plan_.programs[self_].size()),
        sources_(algorithm_.mostSources()),
        isHere_(plan_.ranks,
                shm == nullptr || messages != nullptr || algorithm_.writesElsewhere()) {
    if (c.kind == CollectiveKind::AllReduce || c.kind == CollectiveKind::ReduceScatter) {
      ReduceKind kind = c.op.kind;
      complete_ = reduceFn(kind, c.type);
      if (kind == ReduceKind::Avg) kind = ReduceKind::Sum;
      partial_ = reduceFn(kind, c.type);
    }
    blocked_.reserve(lanes_.size());
  }

  /// Goes on until every lane waits; whether all have ended.
  bool advance() {
    bool moved = true;
    while (moved) {
      moved = false;
      blocked_.clear();
      for (size_t l = 0; l < lanes_.size(); ++l) moved |= step(static_cast<int>(l));
      if (messages_ != nullptr) moved |= messages_->advance();
    }
    if (messages_ != nullptr) messages_->addConditions(blocked_);
    return blocked_.empty();
  }

  /// What the lanes wait for.
  Condition blocked() const {
    return Condition::any(blocked_.data(), static_cast<int>(blocked_.size()));
  }

  uint64_t signals() const { return memory_.layout().units() * algorithm_.mostPerExecution(); }

 private:
  enum class Stage : uint8_t { Begins, Asked, Moved };  // of a step that concerns other hosts
  struct LaneState {
    uint64_t unit = 0;
    size_t step = 0;
    size_t wait = 0;  // of the step
    Stage stage = Stage::Begins;
  };

  /// Does a step of the lane, or notes what it waits for. Lanes are looked at in their order, so
  /// that `blocked_` is right when none has moved.
  bool step(int lane) {
    LaneState& state = lanes_[lane];
    const plan::Lane& steps = plan_.programs[self_][lane];
    if (steps.empty() || state.unit == memory_.layout().units()) return false;
    const auto& prepared = algorithm_.step({self_, lane}, state.step);
    for (; state.wait < prepared.waits.size(); ++state.wait) {
      const auto& wait = prepared.waits[state.wait];
      const int64_t number =
          static_cast<int64_t>(state.unit) * algorithm_.perExecution(wait.channel) + wait.number;
      if (number <= 0) continue;  // a credit
      const int from = plan_.channels[wait.channel].from.rank;
      if (!isHere_[from]) {
        Condition arrived = shm_->arrived(localIndex(from));
        if (!arrived.holds()) return waitFor(arrived);
        shm_->slotOf(localIndex(from));
        isHere_[from] = true;
      }
      Condition given = signalled(wait.channel, static_cast<uint64_t>(number));
      if (!given.holds()) return waitFor(given);
    }
    const plan::Step& step = steps[state.step];
    if (messages_ != nullptr && messages_->concerns(lane, state.step)) {
      Condition waiting;
      if (!stepElsewhere(lane, state, step, prepared.completes, waiting)) return waitFor(waiting);
    } else {
      for (int i = 0; i < step.count && step.moves(); ++i) {
        move(step, state.unit, i, prepared.completes);
      }
    }
    giveSignals(prepared, state.unit);
    state.wait = 0;
    if (++state.step == steps.size()) {
      state.step = 0;
      ++state.unit;
    }
    return true;
  }

  /// The lane does not move.
  bool waitFor(const Condition& condition) {
    blocked_.push_back(condition);
    return false;
  }

  Condition signalled(int channel, uint64_t number) {
    const int from = plan_.channels[channel].from.rank;
    if (shm_ == nullptr || !memory_.isMapped(from)) return messages_->signalled(channel, number);
    return shm_->arena.signalled(localIndex(from), algorithm_.counter(channel), begin_ + number);
  }

  void giveSignals(const PlanAlgorithm::Step& prepared, uint64_t unit) {
    if (prepared.signals.empty()) return;
    if (isAlone()) shm_->settlePuts();
    for (const auto& signal : prepared.signals) {
      const uint64_t number = unit * algorithm_.perExecution(signal.channel) + signal.number;
      if (!memory_.isMapped(plan_.channels[signal.channel].to.rank)) continue;  // by messages
      if (shm_ == nullptr) {
        messages_->signal(signal.channel).store(number, std::memory_order_release);
      } else {
        shm_->arena.signal(shm_->rank, algorithm_.counter(signal.channel))
            .store(begin_ + number, std::memory_order_release);
      }
    }
    if (shm_ != nullptr) shm_->arena.published();
  }

  /// A rank's number among those that share this arena.
  int localIndex(int rank) const {
    const int real = memory_.real(rank);
    const int* const names = shm_->arena.names();
    return names == nullptr ? real
                            : static_cast<int>(std::find(names, names + shm_->size, real) - names);
  }

  void move(const plan::Step& step, uint64_t unit, int offset, bool completes) {
    const size_t bytes = memory_.bytes(step, offset, unit);
    if (bytes == 0) return;
    for (size_t s = 0; s < step.from.size(); ++s) {
      sources_[s] = memory_.at(step, step.from[s], offset, unit);
      countRead(sources_[s], bytes);
    }
    const std::byte* result = sources_[0];
    size_t made = 0;
    if (step.from.size() > 1) {
      std::byte* const first = memory_.at(step, step.to[0], offset, unit);
      combine(first, step.from.size(), bytes, completes);
      countWritten(first, bytes);
      result = first;
      made = 1;
    }
    for (size_t t = made; t < step.to.size(); ++t) {
      std::byte* const to = memory_.at(step, step.to[t], offset, unit);
      countWritten(to, bytes);
      if (!isAlone()) {
        copyBlock(to, result, bytes);
      } else if (step.to[t].buffer == plan::Buffer::Scratch) {
        shm_->put(to, result, bytes);
      } else if (algorithm_.readsOutput(self_)) {
        copyBlock(to, result, bytes);
      } else {
        shm_->take(to, result, bytes);
      }
    }
  }

  void countRead(const std::byte* from, size_t bytes) const {
    if (shm_ != nullptr) shm_->countRead(from, bytes);
  }
  void countWritten(const std::byte* to, size_t bytes) const {
    if (shm_ != nullptr) shm_->countWritten(to, bytes);
  }

  /// With all ranks on this host.
  bool isAlone() const { return messages_ == nullptr; }

  /// What the sources make.
  void combine(std::byte* to, size_t count, size_t bytes, bool completes) {
    if (count == 1) return copyBlock(to, sources_[0], bytes);
    (completes ? complete_ : partial_)(to, sources_.data(), static_cast<int>(count),
                                       bytes / memory_.element(), memory_.size());
  }

  /// A step that reads or writes scratch of other hosts, or signals there. Whether it has ended, if
  /// not what it waits for.
  bool stepElsewhere(int lane, LaneState& state, const plan::Step& step, bool completes,
                     Condition& waiting) {
    if (state.stage == Stage::Begins) {
      messages_->ask(lane, state.step, state.unit);
      state.stage = Stage::Asked;
    }
    if (state.stage == Stage::Asked) {
      if (!messages_->hasAnswers(lane, waiting)) return false;
      for (int i = 0; i < step.count && step.moves(); ++i) {
        moveElsewhere(lane, step, state.unit, i, completes);
      }
      messages_->endPuts(lane, state.step, state.unit);
      state.stage = Stage::Moved;
    }
    if (!messages_->hasLeft(lane, waiting)) return false;
    messages_->endStep(lane, state.step, state.unit);
    state.stage = Stage::Begins;
    return true;
  }

  void moveElsewhere(int lane, const plan::Step& step, uint64_t unit, int offset, bool completes) {
    const size_t bytes = memory_.bytes(step, offset, unit);
    if (bytes == 0) return;
    for (size_t s = 0; s < step.from.size(); ++s) {
      const bool here = memory_.isMapped(step.from[s].rank);
      sources_[s] =
          here ? memory_.at(step, step.from[s], offset, unit) : messages_->answer(lane, offset, s);
      if (here) countRead(sources_[s], bytes);
    }
    // The result is made where it is wanted here; a copy that is not needs none.
    const std::byte* result = step.from.size() == 1 ? sources_[0] : nullptr;
    for (const plan::Place& place : step.to) {
      if (!memory_.isMapped(place.rank)) continue;
      std::byte* const to = memory_.at(step, place, offset, unit);
      countWritten(to, bytes);
      if (result == nullptr) {
        combine(to, step.from.size(), bytes, completes);
        result = to;
      } else {
        copyBlock(to, result, bytes);
      }
    }
    if (result == nullptr) {
      std::byte* const made = messages_->staging(lane, bytes);
      combine(made, step.from.size(), bytes, completes);
      result = made;
    }
    for (const plan::Place& place : step.to) {
      if (!memory_.isMapped(place.rank)) messages_->put(lane, place.rank, result, bytes);
    }
  }

  ShmContext* const shm_;
  PlanMessages* const messages_;
  const PlanMemory& memory_;
  const PlanAlgorithm& algorithm_;
  const plan::Plan& plan_;
  const int self_;
  const uint64_t begin_;  // what the counters of the arena stood at, at most
  std::vector<LaneState> lanes_;
  std::vector<Condition> blocked_;
  std::vector<const std::byte*> sources_;
  std::vector<bool> isHere_;  // ranks that are known to be in the same call
  ReduceFn complete_ = nullptr, partial_ = nullptr;
};

/// The scratch of the ranks that share an arena, by what the communicator calls them: of each ring
/// as much as is needed.
std::vector<std::byte*> scratchIn(ShmContext& shm, const PlanLayout& layout, int size) {
  shm.beginScratch(layout.scratchBytes());
  std::vector<std::byte*> scratch(size, nullptr);
  for (int r = 0; r < shm.size; ++r) scratch[shm.arena.nameOf(r)] = shm.bufferOf(r, 0);
  return scratch;
}

/// The plan has ended here. Who writes to its scratch next waits until it has on all ranks.
void giveBack(ShmContext& shm, const PlanRun& run) {
  shm.endSignals(run.signals());
  shm.endRounds();
}

}  // namespace

uint64_t unitsOf(const plan::Plan& plan, size_t count, size_t elementBytes) {
  return PlanLayout(plan, count, elementBytes).units();
}

bool canSpanHosts(const PlanAlgorithm& algorithm, const Collective& c) {
  return !algorithm.needsSharedMemory() &&
         PlanMessages::canDo(algorithm, unitsOf(algorithm.plan(), c.count, sizeOf(c.type)));
}

Task runPlan(ShmContext& shm, const Collective& c) {
  const PlanLayout layout(c);
  co_await shm.slotFree();
  shm.publishSlot();
  const PlanMemory memory(c, layout, shm.rank, scratchIn(shm, layout, shm.size));
  if (c.plan->writesElsewhere()) {
    // A rank that is here has ended all earlier collectives, so its scratch is free; and it is in
    // the same call, so no rank writes where another has something else.
    co_await shm.allArrived();
    shm.checkAll();
  } else {
    co_await shm.scratchFree();
  }
  PlanRun run(&shm, nullptr, memory, c);
  while (!run.advance()) co_await run.blocked();
  giveBack(shm, run);
}

Task runPlan(HostsContext& hosts, const Collective& c) {
  ShmContext* const shm = hosts.shm();
  NetContext& net = hosts.all;
  net.prepare(net.size);
  const PlanLayout layout(c);
  std::vector<std::byte*> scratch(net.size, nullptr);
  if (shm != nullptr) {
    shm->beginStep(hosts.call.board, hosts.call.record());
    co_await shm->slotFree();
    shm->publishSlot();
    co_await shm->allArrived();
    shm->checkAll();
    scratch = scratchIn(*shm, layout, net.size);
  } else {
    scratch[net.rank] = hosts.scratch(PlanMemory::kScratchBytes);
  }
  // What other hosts send before this rank is here waits in the transport.
  const PlanMemory memory(c, layout, net.rank, std::move(scratch));
  PlanMessages messages(net, hosts.map, *c.plan, memory);
  PlanRun run(shm, &messages, memory, c);
  while (!run.advance()) co_await run.blocked();
  if (shm != nullptr) giveBack(*shm, run);
}

}  // namespace ctran
