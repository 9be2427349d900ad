#pragma once

#include "ctran/collective/tcp_context.h"
#include "ctran/topology/host_map.h"

namespace ctran {

/// all_to_all and all_to_all_v among those ranks that are not on one host; all, if `near` is null.
Task allToAllFar(TcpContext&, const Collective&, const HostMap* near);
Task allToAllVFar(TcpContext&, const Collective&, const HostMap* near);

}  // namespace ctran
