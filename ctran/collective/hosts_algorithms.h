#pragma once

#include "ctran/collective/hosts_context.h"
#include "ctran/collective/preference.h"

namespace ctran {

/// The algorithms of several hosts of which some have several ranks: shared memory inside, TCP
/// between. Each is described where it is defined, in the folder of its collective.
using HostsAlgorithm = Task (*)(HostsContext&, const Collective&);

Task barrierGroup(HostsContext&, const Collective&);
Task broadcastGroup(HostsContext&, const Collective&);
Task allReduceGroup(HostsContext&, const Collective&);
Task reduceGroup(HostsContext&, const Collective&);
Task allGatherGroup(HostsContext&, const Collective&);
Task reduceScatterGroup(HostsContext&, const Collective&);
Task scatterGroup(HostsContext&, const Collective&);
Task gatherGroup(HostsContext&, const Collective&);
Task allToAllGroup(HostsContext&, const Collective&);

/// A step of those who have nothing to do in it.
inline Task doNothing(TcpContext&) { co_return; }

/// Starts a collective by the algorithm for it: a function of its agreed fields, the hosts and the
/// preference, so that all ranks choose alike.
Task startBetweenHosts(HostsContext& hosts, const Collective& c, const HostsPreference& preference);

}  // namespace ctran
