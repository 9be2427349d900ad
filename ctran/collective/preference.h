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

/// Algorithms that somebody wants, as `parseAlgorithms` reads them.
class Preferences {
 public:
  Preferences() = default;
  Preferences(const std::string& text, const std::string& source);

  const std::string* of(CollectiveKind kind) const;
  /// Whether that name is wanted for this collective in particular.
  bool names(CollectiveKind kind, std::string_view name) const;
  /// Throws Error(InvalidArgument) if for some collective all that is wanted is none of these
  /// places, or is so for all collectives. `whose`: "GPUs".
  void checkPlaces(std::initializer_list<AlgorithmPlace> places, const char* whose) const;
  /// The names that are wanted for a collective: those for it alone, the last one first, then those
  /// for all.
  std::vector<std::string_view> namesFor(CollectiveKind kind) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_, source_;
  std::vector<WantedAlgorithm> wanted_;
};

/// What CTRAN_ALGORITHM says.
Preferences userPreferences();
/// What the hint ctran::algorithm says.
Preferences hintedPreferences(const std::map<std::string, std::string>& hints);

/// The hints of one call. They come before those that the communicator was created with. All ranks
/// pass the same ones: they are in the signature of the call.
struct CallHints {
  Preferences preferences;
  bool inRankOrder = false;
  bool alone = false;  ///< what the communicator was created with does not count
  uint64_t hash = 0;   ///< of all of the above; never 0
};

/// Null if there are none of ctran and not `alone`.
/// Throws Error(InvalidArgument) if a hint that begins with "ctran::" is none of a call's, or has a
/// value that makes no sense. Hints without that prefix belong to others.
std::shared_ptr<const CallHints> callHints(const std::map<std::string, std::string>& hints,
                                           bool alone);

/// What the hints of a call (or null) and of its communicator ask for, in this order; null where
/// they do not count.
std::array<const Preferences*, 2> hintsOf(const CallHints* call, const Preferences& communicator);

/// Whether the hint ctran::deterministic asks for reductions in the order of the ranks. Throws
/// Error(InvalidArgument) if it asks for something else.
bool wantsRankOrder(const std::map<std::string, std::string>& hints);

/// Reasons for a choice.
inline constexpr const char* kByHint = "the hint ctran::algorithm";
inline constexpr const char* kByUser = "CTRAN_ALGORITHM";

/// The name of the algorithms that use shared memory inside hosts.
inline constexpr const char* kGroup = "group";

}  // namespace ctran
