#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "ctran/base/collective_kind.h"

namespace ctran {

/// What CTRAN_ALGORITHM says.
std::string wantedAlgorithms();

/// Throws Error(InvalidArgument) if the collective, or without one no collective at all, has an
/// algorithm of that name, on one host or between several: one setting may serve both. `source`
/// says who asks for it.
void checkAlgorithm(std::optional<CollectiveKind> kind, const std::string& name,
                    const std::string& source);

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
  void parse(const std::string& text, const std::string& where);

  std::string any_;
  std::map<CollectiveKind, std::string> named_;
  bool inRankOrder_ = false;
};

/// The name of the algorithms that use shared memory inside hosts.
inline constexpr const char* kGroup = "group";

}  // namespace ctran
