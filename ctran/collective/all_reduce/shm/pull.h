#pragma once

#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"

namespace ctran {

/// Reduces to `root`, or to all ranks (kFromAll), by reading the others' tensors.
Task reduceByPulling(ShmContext& shm, const Collective& c, int root);

/// The cost of that.
double reduceByPullingMicros(const AlgorithmQuery& query);

}  // namespace ctran
