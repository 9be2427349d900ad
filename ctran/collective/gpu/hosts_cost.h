#pragma once

#include <string>

#include "ctran/collective/algorithm.h"

namespace ctran {

// The cost model of GPUs of several domains. The query has the map of the domains.

/// Of handing a step to the host and getting it back: estimated, not measured.
inline constexpr double kHandOverMicros = 20;

/// Of so many bytes over the bus between GPU and host.
double busMicros(double bytes);
/// Of the copy of so many bytes into what stageOnRail gives, or from there.
double stagingMicros(const AlgorithmQuery& query, double bytes);
/// Of so many bytes, which each rank has, among the ranks of the largest domain.
double kernelMicros(const AlgorithmQuery& query, double bytes);
/// Of the collective among all ranks over the network, in memory of the host.
double networkMicros(const AlgorithmQuery& query);
/// Of a collective of each rail, in which a rank contributes so many bytes.
double railMicros(const AlgorithmQuery& query, CollectiveKind kind, double bytes);

/// Why rails of all ranks do not serve: not all domains are of one size.
std::string whyNotEven(const AlgorithmQuery& query);

}  // namespace ctran
