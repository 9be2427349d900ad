#pragma once

#include <string>
#include <string_view>

#include "ctran/collective/tcp_context.h"

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

/// The algorithm for a collective: a function of its agreed fields, the size, and the name that the
/// user prefers (all ranks the same; empty for none), so that all ranks choose alike. The name
/// counts where the collective has an algorithm of that name. In rank order: each part is reduced
/// at once, on one rank.
TcpAlgorithm chooseTcpAlgorithm(const Collective& collective, int size, std::string_view preferred,
                                bool inRankOrder = false);

/// Whether the collective has an algorithm of that name.
bool hasTcpAlgorithm(CollectiveKind kind, std::string_view name);

/// The names of those of a collective, for people; of all collectives without one.
std::string tcpAlgorithmNames(const CollectiveKind* kind = nullptr);

/// Whether sums of partial sums are as good as sums: not if each is rounded to few digits.
bool toleratesPartialSums(const Collective& collective);

}  // namespace ctran
