#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "ctran/collective/plan/algorithm.h"
#include "ctran/collective/preference.h"
#include "ctran/select/selector.h"

namespace ctran {

/// Plans of the library that serve, on one host, algorithms that somebody names and that shared
/// memory does not have.
class NamedPlans {
 public:
  /// Reads the hints of a communicator of `size` ranks, and CTRAN_ALGORITHM. Throws
  /// Error(InvalidArgument).
  NamedPlans(const std::map<std::string, std::string>& hints, int size);

  /// Returns the plan that serves the call; null if none does.
  std::shared_ptr<const PlanAlgorithm> find(const Collective& collective) const {
    return isNamed_ || collective.hints ? findNamed(collective) : nullptr;
  }
  /// Writes into `explanation` that such a plan serves the call, if one does.
  void explain(const Collective& collective, Explanation& explanation) const;

 private:
  struct Named {
    std::string algorithm, why;
    std::shared_ptr<const PlanAlgorithm> plan;
  };
  std::shared_ptr<const PlanAlgorithm> findNamed(const Collective& collective) const;
  std::shared_ptr<const PlanAlgorithm> findHinted(const Collective& collective) const;

  const int size_;
  const bool inRankOrder_;
  bool isNamed_ = false;  ///< there is one among `plans_`
  std::array<Named, static_cast<size_t>(CollectiveKind::AllToAll) + 1> plans_;  // by kind
  /// The plans that hints of calls have named so far; null where the library has none.
  mutable std::map<std::pair<CollectiveKind, std::string>, std::shared_ptr<const PlanAlgorithm>>
      hinted_;
};

}  // namespace ctran
