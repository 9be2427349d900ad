#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/base/collective_kind.h"
#include "ctran/collective/algorithm.h"

namespace ctran {

/// Returns the value of CTRAN_ALGORITHM.
std::string wantedAlgorithms();

/// The name of a wanted algorithm, for one collective or for every collective that has one of that
/// name.
struct WantedAlgorithm {
  std::optional<CollectiveKind> kind;
  std::string name;
};

/// Parses "two_phase" or "all_reduce=ring,all_gather=bruck"; of several for the same collective the
/// last one counts. Throws Error(InvalidArgument) if no collective has such an algorithm, neither
/// on one host nor between several: one setting may serve both. `source` says who asks for it, in
/// the error.
std::vector<WantedAlgorithm> parseAlgorithms(const std::string& text, const std::string& source);

/// The algorithms that a setting wants, as `parseAlgorithms` reads them.
class Preferences {
 public:
  Preferences() = default;
  Preferences(const std::string& text, const std::string& source);

  const std::string* of(CollectiveKind kind) const;
  /// Returns whether that name is wanted for this collective in particular.
  bool names(CollectiveKind kind, std::string_view name) const;
  /// Throws Error(InvalidArgument) if, for some collective or for all of them, every wanted
  /// algorithm is missing in these places. `whose` is for the message: "GPUs".
  void checkPlaces(std::initializer_list<AlgorithmPlace> places, const char* whose) const;
  /// Returns the names that are wanted for a collective: first those for it alone, the last one
  /// first, then those for all collectives.
  std::vector<std::string_view> namesFor(CollectiveKind kind) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_, source_;
  std::vector<WantedAlgorithm> wanted_;
};

/// Parses CTRAN_ALGORITHM.
Preferences userPreferences();
/// Parses the hint ctran::algorithm.
Preferences hintedPreferences(const std::map<std::string, std::string>& hints);

/// The hints of one call. They override those that the communicator was created with. All ranks
/// pass the same ones: they are in the signature of the call.
struct CallHints {
  Preferences preferences;
  bool inRankOrder = false;
  bool alone = false;      ///< the hints of the communicator do not count
  bool openPlans = false;  ///< they may name plans that promise no result
  uint64_t hash = 0;       ///< hash of all of the above; never 0
};

/// Reads the hints of a call. Returns null if none is ctran's and `alone` is false. Throws
/// Error(InvalidArgument) if a hint that begins with "ctran::" is not one of a call's, or has a
/// wrong value. Hints without that prefix belong to others.
std::shared_ptr<const CallHints> callHints(const std::map<std::string, std::string>& hints,
                                           bool alone);

/// Returns what the hints of a call (which may be null) and of its communicator ask for, in this
/// order; null where they do not count.
std::array<const Preferences*, 2> hintsOf(const CallHints* call, const Preferences& communicator);

/// Returns whether the hint ctran::deterministic asks for reductions in the order of the ranks.
/// Throws Error(InvalidArgument) if it asks for something else.
bool wantsRankOrder(const std::map<std::string, std::string>& hints);

/// Reasons for a choice, for people.
inline constexpr const char* kByHint = "the hint ctran::algorithm";
inline constexpr const char* kByUser = "CTRAN_ALGORITHM";

/// The name of the algorithms that use shared memory inside hosts.
inline constexpr const char* kGroup = "group";

}  // namespace ctran
