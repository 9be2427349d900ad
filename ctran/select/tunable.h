#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ctran/base/collective_kind.h"
#include "ctran/select/tuning_table.h"

namespace ctran {

/// The interface through which the tuner sees a chooser of algorithms.
class Tunable {
 public:
  virtual ~Tunable() = default;
  /// Returns the names of the algorithms that can serve a call in which every rank contributes
  /// `bytes` bytes. The same on all ranks.
  virtual std::vector<std::string> candidates(CollectiveKind kind, size_t bytes) const = 0;
  /// Chooses that algorithm from now on, whenever it can serve; an empty name ends this.
  virtual void force(CollectiveKind kind, std::string_view name) = 0;
  virtual void use(TuningTable table) = 0;
};

}  // namespace ctran
