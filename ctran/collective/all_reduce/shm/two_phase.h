#pragma once

#include "ctran/collective/shm_context.h"

namespace ctran {

/// All-reduce and reduce: `root` alone gets the result, or everybody (kFromAll).
Task reduceDirectly(ShmContext& shm, const Collective& c, int root);
Task reduceInTwoPhases(ShmContext& shm, const Collective& c, int root);

}  // namespace ctran
