#pragma once

#include "ctran/plan/plan.h"

namespace ctran::plan {

/// The same plan for executors that cannot reach the buffers of other ranks' callers: the chunks
/// that others reach are copied to scratch first, or back in the end, and scratch is used in their
/// place. The plan itself if there are none.
Plan staged(const Plan& plan);

}  // namespace ctran::plan
