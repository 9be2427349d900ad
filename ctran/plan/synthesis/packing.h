#pragma once

#include "ctran/plan/synthesis/forest.h"

namespace ctran::plan {

/// How many trees a link carries: [from][to].
using Capacities = std::vector<std::vector<int64_t>>;

/// Whether `trees` trees from each rank fit: so many times `ranks` can flow from all ranks together
/// to each one (Edmonds 1973).
bool isEnough(const Capacities& capacity, int ranks, int64_t trees);

/// Replaces ways through switches by links from rank to rank, of which as many trees fit. In the
/// end no link leads to a switch. Returns how the new links go.
Routes splitOff(Capacities& capacity, int ranks, int64_t trees);

/// `trees` trees from each rank, together as wide as `capacity` among ranks allows.
std::vector<Tree> grow(Capacities capacity, int ranks, int64_t trees);

}  // namespace ctran::plan
