#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ctran/base/collective_kind.h"
#include "ctran/select/tuning_table.h"

namespace ctran {

/// What chooses among algorithms, as the tuner sees it.
class Tunable {
 public:
  virtual ~Tunable() = default;
  /// The names of those that can serve a call in which every rank contributes that many bytes. The
  /// same on all ranks.
  virtual std::vector<std::string> candidates(CollectiveKind kind, size_t bytes) const = 0;
  /// From now on that one, whenever it can serve; empty: no more.
  virtual void force(CollectiveKind kind, std::string_view name) = 0;
  virtual void use(TuningTable table) = 0;
};

}  // namespace ctran
