#pragma once

#include <functional>
#include <string>

#include "ctran/collective/collective.h"
#include "ctran/select/tunable.h"

namespace ctran {

struct TuneOptions {
  double seconds = 30;
  /// Told now and then how much is done, from 0 to 1, and what is next.
  std::function<void(double, const std::string&)> progress;
};

/// Measures every algorithm of every collective that has a choice, at sizes for which there is one,
/// and lets the selector use the result, which is the same on all ranks. Takes about that long.
/// Collective: `run` runs an operation on the communicator that the selector serves. `table`: whose
/// it will be, without entries.
TuningTable tune(TuningTable table, Tunable& selector,
                 const std::function<void(const Collective&)>& run, const TuneOptions& options);

}  // namespace ctran
