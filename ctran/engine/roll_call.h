#pragma once

#include <string>
#include <vector>

#include "ctran/collective/collective.h"
#include "ctran/engine/core.h"

namespace ctran {

/// "last collective barrier(), its collective 7, completed", and the last send or recv beside it;
/// also of a rank that is dead.
std::string lastOperation(Core& core, int rank);

/// Error(Timeout) of a collective: who has not called it (those furthest behind, as the others may
/// only wait for them), or, if all have, who is late in it, and what every rank did last.
Error collectiveTimeout(Core& core, const Collective& collective, uint64_t sequence, int waitedFor,
                        int64_t timeoutNanos);

/// The same across hosts, where a rank only knows what those it has heard of have said: names the
/// one that it waits for. `silentNanos`: of that one, see Transport.
Error remoteTimeout(Core& core, const Collective& collective, uint64_t sequence, int waitedFor,
                    int64_t timeoutNanos, int64_t silentNanos);

/// Error(Timeout) of a send or recv: names the peer, and those of this host for whom that waits.
Error channelTimeout(Core& core, const Collective& collective, int64_t timeoutNanos);

/// Error(Timeout) of a wait for `what`, which that rank (-1: any) has not done.
Error waitTimeout(Core& core, const Collective& collective, const std::string& what, int waitedFor,
                  int64_t timeoutNanos);

/// Error(PeerLost) of the ranks of a process that has ended.
Error deathError(Core& core, const std::vector<int>& ranks, int pid);

}  // namespace ctran
