#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ctran/collective/shm_context.h"

namespace ctran {

/// The native algorithms of one host. "Step" are for data that goes in one step; the others
/// for any size. Each is described where it is defined, in the folder of its collective.
using ShmAlgorithm = Task (*)(ShmContext&, const Collective&);

Task barrierStep(ShmContext&, const Collective&);
Task broadcastStep(ShmContext&, const Collective&);
Task broadcastRounds(ShmContext&, const Collective&);
Task broadcastPull(ShmContext&, const Collective&);
Task allReduceStep(ShmContext&, const Collective&);
Task allReduceDirect(ShmContext&, const Collective&);
Task allReduceTwoPhase(ShmContext&, const Collective&);
Task allReducePull(ShmContext&, const Collective&);
Task reduceStep(ShmContext&, const Collective&);
Task reduceDirect(ShmContext&, const Collective&);
Task reduceTwoPhase(ShmContext&, const Collective&);
Task allGatherStep(ShmContext&, const Collective&);
Task allGatherRounds(ShmContext&, const Collective&);
Task allGatherPull(ShmContext&, const Collective&);
Task reduceScatterStep(ShmContext&, const Collective&);
Task reduceScatterRounds(ShmContext&, const Collective&);
Task reduceScatterPull(ShmContext&, const Collective&);
Task scatterStep(ShmContext&, const Collective&);
Task scatterRounds(ShmContext&, const Collective&);
Task gatherStep(ShmContext&, const Collective&);
Task gatherRounds(ShmContext&, const Collective&);
Task allToAllStep(ShmContext&, const Collective&);
Task allToAllRounds(ShmContext&, const Collective&);
Task allToAllPull(ShmContext&, const Collective&);
Task allToAllV(ShmContext&, const Collective&);

/// An algorithm as a user or the selector knows it. What can be asked is the same on all ranks, as
/// it follows from the kind, the bytes that a rank contributes, and the size.
struct ShmChoice {
  CollectiveKind kind;
  std::string_view name;
  ShmAlgorithm run;
  /// Why it cannot serve; empty if it can.
  std::string (*whyNot)(size_t bytes, int size);
  /// The cost model: microseconds.
  double (*micros)(CollectiveKind kind, size_t bytes, int size);
  /// Whether ranks read the memory of others: see ShmContext::processes.
  bool reads = false;
};

/// Those of a collective; none if it is no collective.
std::span<const ShmChoice> shmChoices(CollectiveKind kind);
/// The fastest that can serve by the cost model, which is `micros` then, if not null. `reads`:
/// whether it may be one that does.
const ShmChoice& cheapestShm(CollectiveKind kind, size_t bytes, int size, bool reads = false,
                             double* micros = nullptr);
/// What serves all collectives of a single rank.
const ShmChoice& shmAlone();

/// What a rank publishes at most in a collective: of all_reduce, reduce, broadcast, gather and
/// all_gather its block, of reduce_scatter, scatter and all_to_all all of its blocks. The same on
/// all ranks; 0 where they do not know.
size_t contributionBytes(const Collective& collective, int size);

}  // namespace ctran
