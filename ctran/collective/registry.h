#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ctran/collective/algorithm.h"

namespace ctran {

/// The algorithms of a place for a collective, those that pass on partial sums last; none if it is
/// no collective.
std::span<const Algorithm* const> algorithmsOf(AlgorithmPlace place, CollectiveKind kind);

/// Null if there is none of that name.
const Algorithm* findAlgorithm(AlgorithmPlace place, CollectiveKind kind, std::string_view name);

/// Whether some collective has one of that name.
bool isAlgorithm(AlgorithmPlace place, std::string_view name);

/// The fastest by the cost model of those that can serve; `micros` is set to its time, if not null.
/// It reads no other process's memory unless `readsPeers`, and passes on no partial sums unless the
/// query allows.
const Algorithm& cheapestAlgorithm(AlgorithmPlace place, const AlgorithmQuery& query,
                                   bool readsPeers = false, double* micros = nullptr);

/// The names of a place's algorithms, of one collective or of all (null): "bruck, direct, ring".
std::string algorithmNames(AlgorithmPlace place, const CollectiveKind* kind);

}  // namespace ctran
