#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ctran/select/selector.h"
#include "ctran/select/tuning_table.h"

namespace ctran {

/// Which of two members of a backend, the engine ("ctran") or the vendor's library ("vendor"),
/// serves a call on GPUs: the one that was faster when both were measured, the engine where nobody
/// measured. Between two sizes that were, times are interpolated, with logarithms. Of a call only
/// what all ranks agree about counts: its kind, and what a rank contributes.
class Members {
 public:
  static constexpr const char* kEngine = "ctran";
  static constexpr const char* kVendor = "vendor";

  Members() = default;
  /// Entries name both members. `origin` is for people: where the times are from.
  Members(TuningTable table, std::string origin);

  /// Costs some nanoseconds.
  bool takesVendor(CollectiveKind kind, size_t bytes) const;
  /// Microseconds of a member, if there are measurements of the collective.
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

/// What tables of GPUs like that one are kept under, such as "gpu-NVIDIA-H200".
std::string gpuMachine(int device);

/// What both took among so many ranks, or the number that comes nearest, on H200 GPUs that reach
/// each other over NVLink: benchmarks/results/h200x*/gpu_collectives.jsonl, as of the build.
TuningTable measuredOnH200(int ranks);

}  // namespace ctran
