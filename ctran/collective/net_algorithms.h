#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {

/// The native algorithms between hosts. Each is described where it is defined, in the folder of its
/// collective.
using NetAlgorithm = Task (*)(NetContext&, const Collective&);

Task barrierDissemination(NetContext&, const Collective&);
Task broadcastBinomial(NetContext&, const Collective&);
Task broadcastDirect(NetContext&, const Collective&);
Task broadcastScatterAllGather(NetContext&, const Collective&);
Task allReduceDirect(NetContext&, const Collective&);
Task allReduceTwoPhase(NetContext&, const Collective&);
Task allReduceRing(NetContext&, const Collective&);
Task allReduceHalvingDoubling(NetContext&, const Collective&);
Task reduceDirect(NetContext&, const Collective&);
Task reduceTwoPhase(NetContext&, const Collective&);
Task reduceBinomial(NetContext&, const Collective&);
Task allGatherDirect(NetContext&, const Collective&);
Task allGatherRing(NetContext&, const Collective&);
Task allGatherRecursiveDoubling(NetContext&, const Collective&);
Task allGatherBruck(NetContext&, const Collective&);
Task reduceScatterDirect(NetContext&, const Collective&);
Task reduceScatterRing(NetContext&, const Collective&);
Task reduceScatterRecursiveHalving(NetContext&, const Collective&);
Task scatterDirect(NetContext&, const Collective&);
Task scatterBinomial(NetContext&, const Collective&);
Task gatherDirect(NetContext&, const Collective&);
Task gatherBinomial(NetContext&, const Collective&);
Task allToAllDirect(NetContext&, const Collective&);
Task allToAllPairwise(NetContext&, const Collective&);
Task allToAllBruck(NetContext&, const Collective&);
Task allToAllVDirect(NetContext&, const Collective&);
Task allToAllVPairwise(NetContext&, const Collective&);

/// An algorithm as a user or a selector knows it. What can be asked is the same on all ranks.
struct NetChoice {
  CollectiveKind kind;
  std::string_view name;
  NetAlgorithm run;
  NetLoad (*load)(const NetShape& form);
  bool sumsPartially = false;  ///< passes on partial sums
};

/// Those of a collective; none if it is no collective.
std::span<const NetChoice> netChoices(CollectiveKind kind);

/// The fastest by the cost model of those that do not pass on partial sums, or of all; takes
/// `micros` then, if not null. `bytes`: see contributionBytes. `sharing`: so many ranks share the
/// network interface of a host.
const NetChoice& cheapestNet(CollectiveKind kind, size_t bytes, int size, bool partialSums,
                             int sharing = 1, double* micros = nullptr);

/// What it would take by the cost model.
double microsOf(const NetChoice& choice, size_t bytes, int size, int sharing = 1);

/// Whether the collective has an algorithm of that name.
bool hasNetAlgorithm(CollectiveKind kind, std::string_view name);

/// The names of those of a collective, for people; of all collectives without one.
std::string netAlgorithmNames(const CollectiveKind* kind = nullptr);

/// Whether sums of partial sums are as good as sums: not if each is rounded to few digits.
bool toleratesPartialSums(DataType type, ReduceKind op);
inline bool toleratesPartialSums(const Collective& c) {
  return toleratesPartialSums(c.type, c.op.kind);
}

}  // namespace ctran
