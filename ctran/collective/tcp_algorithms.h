#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ctran/collective/tcp_context.h"
#include "ctran/collective/tcp_cost.h"

namespace ctran {

/// The native algorithms between hosts. Each is described where it is defined, in the folder of its
/// collective.
using TcpAlgorithm = Task (*)(TcpContext&, const Collective&);

Task barrierDissemination(TcpContext&, const Collective&);
Task broadcastBinomial(TcpContext&, const Collective&);
Task broadcastDirect(TcpContext&, const Collective&);
Task broadcastScatterAllGather(TcpContext&, const Collective&);
Task allReduceDirect(TcpContext&, const Collective&);
Task allReduceTwoPhase(TcpContext&, const Collective&);
Task allReduceRing(TcpContext&, const Collective&);
Task allReduceHalvingDoubling(TcpContext&, const Collective&);
Task reduceDirect(TcpContext&, const Collective&);
Task reduceTwoPhase(TcpContext&, const Collective&);
Task reduceBinomial(TcpContext&, const Collective&);
Task allGatherDirect(TcpContext&, const Collective&);
Task allGatherRing(TcpContext&, const Collective&);
Task allGatherRecursiveDoubling(TcpContext&, const Collective&);
Task allGatherBruck(TcpContext&, const Collective&);
Task reduceScatterDirect(TcpContext&, const Collective&);
Task reduceScatterRing(TcpContext&, const Collective&);
Task reduceScatterRecursiveHalving(TcpContext&, const Collective&);
Task scatterDirect(TcpContext&, const Collective&);
Task scatterBinomial(TcpContext&, const Collective&);
Task gatherDirect(TcpContext&, const Collective&);
Task gatherBinomial(TcpContext&, const Collective&);
Task allToAllDirect(TcpContext&, const Collective&);
Task allToAllPairwise(TcpContext&, const Collective&);
Task allToAllBruck(TcpContext&, const Collective&);
Task allToAllVDirect(TcpContext&, const Collective&);
Task allToAllVPairwise(TcpContext&, const Collective&);

/// An algorithm as a user or a selector knows it. What can be asked is the same on all ranks.
struct TcpChoice {
  CollectiveKind kind;
  std::string_view name;
  TcpAlgorithm run;
  TcpLoad (*load)(const TcpForm& form);
  bool sumsPartially = false;  ///< passes on partial sums
};

/// Those of a collective; none if it is no collective.
std::span<const TcpChoice> tcpChoices(CollectiveKind kind);

/// The fastest by the cost model of those that do not pass on partial sums, or of all; takes
/// `micros` then, if not null. `bytes`: see contributionBytes. `sharing`: so many ranks share the
/// network interface of a host.
const TcpChoice& cheapestTcp(CollectiveKind kind, size_t bytes, int size, bool partialSums,
                             int sharing = 1, double* micros = nullptr);

/// What it would take by the cost model.
double microsOf(const TcpChoice& choice, size_t bytes, int size, int sharing = 1);

/// Whether the collective has an algorithm of that name.
bool hasTcpAlgorithm(CollectiveKind kind, std::string_view name);

/// The names of those of a collective, for people; of all collectives without one.
std::string tcpAlgorithmNames(const CollectiveKind* kind = nullptr);

/// Whether sums of partial sums are as good as sums: not if each is rounded to few digits.
bool toleratesPartialSums(DataType type, ReduceKind op);
inline bool toleratesPartialSums(const Collective& c) {
  return toleratesPartialSums(c.type, c.op.kind);
}

}  // namespace ctran
