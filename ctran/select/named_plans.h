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

/// The plans of the library that stand in, on one host, for algorithms that somebody names and
/// shared memory does not have.
class NamedPlans {
 public:
  /// Of the hints of a communicator of so many ranks, and CTRAN_ALGORITHM. Throws
  /// Error(InvalidArgument).
  NamedPlans(const std::map<std::string, std::string>& hints, int size);

  /// The plan that serves the call, if one does.
  std::shared_ptr<const PlanAlgorithm> find(const Collective& collective) const;
  /// If one does, says so.
  void explain(const Collective& collective, Explanation& explanation) const;

 private:
  struct Named {
    std::string algorithm, why;
    std::shared_ptr<const PlanAlgorithm> plan;
  };
  std::shared_ptr<const PlanAlgorithm> findHinted(const Collective& collective) const;

  const int size_;
  const bool inRankOrder_;
  std::array<Named, static_cast<size_t>(CollectiveKind::AllToAll) + 1> plans_;  // by kind
  /// Those that hints of calls have named so far; null where the library has none.
  mutable std::map<std::pair<CollectiveKind, std::string>, std::shared_ptr<const PlanAlgorithm>>
      hinted_;
};

}  // namespace ctran
