#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "ctran/collective/algorithm.h"

namespace ctran {

inline constexpr size_t kCollectiveKinds = static_cast<size_t>(CollectiveKind::Signal) + 1;

/// Returns the algorithms of a place for a collective, those that pass on partial sums last; none
/// if `kind` is no collective.
std::span<const Algorithm* const> algorithmsOf(AlgorithmPlace place, CollectiveKind kind);

/// Returns null if there is no algorithm of that name.
const Algorithm* findAlgorithm(AlgorithmPlace place, CollectiveKind kind, std::string_view name);

/// Returns whether some collective has an algorithm of that name.
bool isAlgorithm(AlgorithmPlace place, std::string_view name);

/// Returns the fastest of those that can serve, by the cost model; `micros` is set to its time, if
/// not null. It reads other processes' memory only if `readsPeers`, and passes on partial sums only
/// if the query allows them.
const Algorithm& cheapestAlgorithm(AlgorithmPlace place, const AlgorithmQuery& query,
                                   bool readsPeers = false, double* micros = nullptr);

/// Returns the names of a place's algorithms, for one collective or for all (null): "bruck, direct,
/// ring".
std::string algorithmNames(AlgorithmPlace place, const CollectiveKind* kind);

}  // namespace ctran
