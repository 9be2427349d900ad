#pragma once

#include <functional>
#include <string>

#include "ctran/collective/collective.h"
#include "ctran/select/tunable.h"

namespace ctran {

struct TuneOptions {
  double seconds = 30;
  /// Is called now and then with the part that is done, from 0 to 1, and with what is next.
  std::function<void(double, const std::string&)> progress;
};

/// Measures every algorithm of every collective that has a choice, at sizes for which there is one.
/// The selector then uses the result, which is the same on all ranks. Takes about
/// `options.seconds`. Collective: `run` runs an operation on the communicator that the selector
/// serves. `table` says what the result is for, and has no entries.
TuningTable tune(TuningTable table, Tunable& selector,
                 const std::function<void(const Collective&)>& run, const TuneOptions& options);

}  // namespace ctran
