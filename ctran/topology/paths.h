#pragma once

#include <vector>

#include "ctran/topology/host_map.h"

namespace ctran {

/// Returns the ranks in an order in which those of a host stand next to each other: hosts are in
/// the order of their first ranks, and the ranks of a host in the order of their numbers. A ring in
/// that order goes from host to host once per host; a binary tree whose subtrees are ranges of it
/// does so about as often. The result is the same on all ranks, as the map is.
std::vector<int> ringOrder(const HostMap& map);

}  // namespace ctran
