#pragma once

#include "ctran/collective/net_context.h"
#include "ctran/topology/host_map.h"

namespace ctran {

/// all_to_all and all_to_all_v among those ranks that are not on one host; all, if `near` is null.
Task allToAllFar(NetContext&, const Collective&, const HostMap* near);
Task allToAllVFar(NetContext&, const Collective&, const HostMap* near);

}  // namespace ctran
