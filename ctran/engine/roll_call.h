#pragma once

#include <string>
#include <vector>

#include "ctran/collective/collective.h"
#include "ctran/engine/core.h"

namespace ctran {

/// Describes the last operation of a rank: "last collective barrier(), its collective 7,
/// completed", and the last send or recv beside it. Works for dead ranks, too.
std::string lastOperation(Core& core, int rank);

/// Makes the Error(Timeout) of a collective. It names the ranks that have not called it (those
/// furthest behind, as the others may only wait for them) or, if all have, the rank that is late in
/// it, and says what every rank did last.
Error collectiveTimeout(Core& core, const Collective& collective, uint64_t sequence, int waitedFor,
                        int64_t timeoutNanos);

/// Makes the Error(Timeout) of a collective across hosts, where a rank only knows what it has
/// heard. It names the rank that this one waits for. `silentNanos`: how long nothing was heard of
/// that rank, see Transport.
Error remoteTimeout(Core& core, const Collective& collective, uint64_t sequence, int waitedFor,
                    int64_t timeoutNanos, int64_t silentNanos);

/// Makes the Error(Timeout) of a send or recv. It names the peer, and those ranks of this host for
/// which the peer waits.
Error channelTimeout(Core& core, const Collective& collective, int64_t timeoutNanos);

/// Makes the Error(Timeout) of a wait for `what`, which that rank (-1: any rank) has not done.
Error waitTimeout(Core& core, const Collective& collective, const std::string& what, int waitedFor,
                  int64_t timeoutNanos);

/// Makes the Error(PeerLost) of the ranks of a process that has ended.
Error deathError(Core& core, const std::vector<int>& ranks, int pid);

}  // namespace ctran
