#pragma once

#include <string_view>

#include "ctran/collective/tcp_context.h"

namespace ctran {

/// The native algorithms between hosts. Each is described where it is defined, in the folder of its
/// collective.
using TcpAlgorithm = Task (*)(TcpContext&, const Collective&);

Task barrierDissemination(TcpContext&, const Collective&);
Task broadcastBinomial(TcpContext&, const Collective&);
Task allReduceDirect(TcpContext&, const Collective&);
Task allReduceTwoPhase(TcpContext&, const Collective&);
Task allReduceRing(TcpContext&, const Collective&);
Task reduceDirect(TcpContext&, const Collective&);
Task reduceTwoPhase(TcpContext&, const Collective&);
Task allGatherDirect(TcpContext&, const Collective&);
Task allGatherRing(TcpContext&, const Collective&);
Task reduceScatterDirect(TcpContext&, const Collective&);
Task scatterDirect(TcpContext&, const Collective&);
Task gatherDirect(TcpContext&, const Collective&);
Task allToAllDirect(TcpContext&, const Collective&);
Task allToAllVDirect(TcpContext&, const Collective&);

/// The algorithm for a collective: a function of its agreed fields, the size, and the name that the
/// user prefers (all ranks the same; empty for none), so that all ranks choose alike. The name
/// counts where the collective has an algorithm of that name.
TcpAlgorithm chooseTcpAlgorithm(const Collective& collective, int size, std::string_view preferred);

/// Throws Error(InvalidArgument) if no collective has an algorithm of that name.
void checkTcpAlgorithm(std::string_view name);

}  // namespace ctran
