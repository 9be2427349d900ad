#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "benchmarks/cpp/control.h"

namespace bench {

struct SweepOptions {
  std::string library;
  std::vector<Op> ops;
  std::vector<size_t> sizes;  ///< bytes, see Shape
  int repeats = 7;
  double minSeconds = 0.02;  ///< of one repeat
  std::FILE* json = nullptr;
};

/// Tells the ranks to time every operation at every size; prints a table, a JSON line per entry.
/// Returns whether all went well; a wrong result or an error of a rank ends it.
bool sweep(std::vector<Channel>& ranks, const SweepOptions& options);

}  // namespace bench
