#pragma once

#include <cstdint>
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

/// Which algorithms the user wants between hosts; all ranks the same.
class HostsPreference {
 public:
  /// Of the hints of a communicator, or of CTRAN_ALGORITHM where these name none. Throws
  /// Error(InvalidArgument).
  static HostsPreference of(const std::map<std::string, std::string>& hints);

  /// The name of the one for this collective, if it has one of that name; empty for none.
  const std::string& algorithm(CollectiveKind kind) const;
  /// Reductions are in the order of the ranks.
  bool inRankOrder() const { return inRankOrder_; }
  uint64_t hash() const;

 private:
  void take(const std::string& text, const std::string& source);

  std::string any_;
  std::map<CollectiveKind, std::string> named_;
  bool inRankOrder_ = false;
};

/// The name of the algorithms that use shared memory inside hosts.
inline constexpr const char* kGroup = "group";

}  // namespace ctran
