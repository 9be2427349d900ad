#pragma once

#include <string>

#include "ctran/collective/algorithm.h"

namespace ctran {

// The cost model of GPUs of several domains, in microseconds. The query has the map of the domains.

/// The cost of handing a step to the host and getting it back. It is estimated, not measured.
inline constexpr double kHandOverMicros = 20;

/// Returns the cost of `bytes` over the bus between GPU and host.
double busMicros(double bytes);
/// Returns the cost of copying `bytes` into what stageOnRail returns, or from there.
double stagingMicros(const AlgorithmQuery& query, double bytes);
/// Returns the cost among the ranks of the largest domain, if each rank has `bytes`.
double kernelMicros(const AlgorithmQuery& query, double bytes);
/// Returns the cost of the collective among all ranks over the network, in memory of the host.
double networkMicros(const AlgorithmQuery& query);
/// Returns the cost of a collective of each rail, in which a rank contributes `bytes`.
double railMicros(const AlgorithmQuery& query, CollectiveKind kind, double bytes);

/// Returns why rails of all ranks do not serve: the domains differ in size. Empty if they do serve.
std::string whyNotEven(const AlgorithmQuery& query);

}  // namespace ctran
