#pragma once

#include "ctran/gpu/device/team.cuh"

namespace ctran::device {

/// Part r belongs to rank r: it has `counts[r]` elements, and this rank contributes `parts[r]`.
struct ReduceArguments {
  Team team;
  const void* parts[kMaxRanks];
  u64 counts[kMaxRanks];
  u32 packets[kMaxRanks];    ///< of the parts, or units of lines; at least one
  void* outputs[kMaxRanks];  ///< of part r; null where this rank gets none
  double factor;
  const double* factorAt;  ///< if not null, the factor is there
  u32 shareWith;           ///< lines, pipeline: a mask of ranks that get every part
  u32 most;                ///< lines: units of the longest part
  u32 lookahead;           ///< pipeline
  u32 chunkBytes;          ///< pipeline: of a step, or half of one if the parts are shared
  u64 chunks;              ///< pipeline: of the longest part
  u32 flows;               ///< pipeline: as many on all ranks, whatever their launches look like
};

CTRAN_INLINE double factorOf(const ReduceArguments& a) {
  return a.factorAt ? *a.factorAt : a.factor;
}

}  // namespace ctran::device
