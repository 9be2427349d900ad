#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ctran/plan/plan.h"

/// The plans that come with the engine. Each is described where it is made, in plan/library/.
namespace ctran::plan {

/// How a plan of the library is made; each uses what it needs of this.
struct Recipe {
  int ranks = 2;
  int root = 0;
  int lanes = 1;         ///< lanes that share the data, per direction
  int chunks = 1;        ///< messages that a lane makes of what it has
  int ranksPerHost = 1;  ///< hierarchical plans: ranks 0 to n - 1 are on one host, and so on
};

struct BuiltIn {
  std::string_view name;  ///< "all_reduce.ring"
  CollectiveKind kind;
  std::string_view summary;
  Plan (*make)(const Recipe& recipe);
  /// Why there is none for these ranks; empty if there is.
  std::string (*whyNot)(const Recipe& recipe);
};

const std::vector<BuiltIn>& library();

/// Throws Error(InvalidArgument) if there is no plan of that name, or none for these ranks.
Plan makePlan(std::string_view name, const Recipe& recipe);

}  // namespace ctran::plan
