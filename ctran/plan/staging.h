#pragma once

#include "ctran/plan/plan.h"

namespace ctran::plan {

/// The same plan for executors that cannot reach the buffers of other ranks' callers: a kind of
/// buffer that any rank reaches on another one is copied to scratch first, or back in the end, and
/// scratch is used in its place. The plan itself if there is none.
Plan staged(const Plan& plan);

}  // namespace ctran::plan
