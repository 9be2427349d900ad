#pragma once

#include "ctran/collective/net_context.h"
#include "ctran/topology/host_map.h"

namespace ctran {

/// Run all_to_all and all_to_all_v among ranks that are not on one host; among all if `near` is
/// null.
Task allToAllFar(NetContext&, const Collective&, const HostMap* near);
Task allToAllVFar(NetContext&, const Collective&, const HostMap* near);

}  // namespace ctran
