#pragma once

#include <vector>

#include "ctran/topology/host_map.h"

namespace ctran {

/// The ranks in an order in which those of a host stand next to each other: the hosts in the order
/// of their first ranks, the ranks of a host in theirs. A ring in that order crosses from host to
/// host once per host, and a binary tree whose subtrees are ranges of it about as often. The same
/// on all ranks, as the map is.
std::vector<int> ringOrder(const HostMap& map);

}  // namespace ctran
