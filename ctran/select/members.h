#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ctran/select/selector.h"
#include "ctran/select/tuning_table.h"

namespace ctran {

/// Chooses which of two members of a backend serves a call on GPUs: the engine ("ctran") or the
/// vendor's library ("vendor"). It takes the one that was faster when both were measured, and the
/// engine where nothing was measured. Times between two measured sizes are interpolated, on a
/// logarithmic scale. The choice depends only on what all ranks agree about: the kind of the call,
/// and what a rank contributes.
class Members {
 public:
  static constexpr const char* kEngine = "ctran";
  static constexpr const char* kVendor = "vendor";

  Members() = default;
  /// Every entry of the table names both members. `origin` tells people where the times are from.
  Members(TuningTable table, std::string origin);

  /// Returns whether the vendor's library serves the call. Takes some nanoseconds.
  bool takesVendor(CollectiveKind kind, size_t bytes) const;
  /// Returns the microseconds of a member, if there are measurements of the collective.
  std::optional<double> micros(CollectiveKind kind, size_t bytes, const std::string& member) const;

  const TuningTable& table() const { return table_; }
  const std::string& origin() const { return origin_; }

 private:
  struct Switch {
    size_t from;  ///< bytes
    bool vendor;
  };

  TuningTable table_;
  std::string origin_;
  std::map<CollectiveKind, std::vector<Switch>> switches_;  ///< by bytes
};

/// Returns the name under which tables of GPUs like this one are kept, such as "gpu-NVIDIA-H200".
std::string gpuMachine(int device);

/// Returns what both members took on `ranks` H200 GPUs (or the nearest number that was measured)
/// that reach each other over NVLink: benchmarks/results/h200x*/gpu_collectives.jsonl, as of the
/// build.
TuningTable measuredOnH200(int ranks);

}  // namespace ctran
