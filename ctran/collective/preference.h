#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ctran/base/collective_kind.h"

namespace ctran {

/// What CTRAN_ALGORITHM says.
std::string wantedAlgorithms();

/// An algorithm that somebody wants, for one collective or for every one that has one of that name.
struct WantedAlgorithm {
  std::optional<CollectiveKind> kind;
  std::string name;
};

/// Of "two_phase" or "all_reduce=ring,all_gather=bruck"; of several for the same the last counts.
/// Throws Error(InvalidArgument) if no collective has such an algorithm, on one host or between
/// several: one setting may serve both. `source` says who asks for it.
std::vector<WantedAlgorithm> parseAlgorithms(const std::string& text, const std::string& source);

/// Whether the hint ctran::deterministic asks for reductions in the order of the ranks. Throws
/// Error(InvalidArgument) if it asks for something else.
bool wantsRankOrder(const std::map<std::string, std::string>& hints);

/// The name of the algorithms that use shared memory inside hosts.
inline constexpr const char* kGroup = "group";

}  // namespace ctran
