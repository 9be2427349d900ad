#pragma once

#include "ctran/collective/shm_context.h"

namespace ctran {

/// The rounds of all-reduce and of reduce: `root` alone gets the result, or everybody (kFromAll).
Task reduceInRounds(ShmContext& shm, const Collective& c, int root);

}  // namespace ctran
