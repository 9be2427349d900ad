#pragma once

#include "ctran/collective/shm_context.h"

namespace ctran {

/// Run all-reduce or reduce: only `root` gets the result, or every rank does (kFromAll).
Task reduceDirectly(ShmContext& shm, const Collective& c, int root);
Task reduceInTwoPhases(ShmContext& shm, const Collective& c, int root);

}  // namespace ctran
