// Finds the rank that holds up a plan on one host.
#include <optional>

#include "ctran/collective/plan/algorithm.h"
#include "ctran/collective/plan/run.h"

namespace ctran {

using plan::LaneId;

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
