#pragma once

#include "ctran/plan/plan.h"

namespace ctran::plan {

/// The same plan without the credits that order nothing: where data that comes back tells a lane
/// already that its slots have been read, as when everybody sends to everybody and there are two
/// copies of scratch. What is left has been verified, and works in place if the plan does.
/// For executors to which a signal is dear. Takes a verification for each channel with credits.
Plan withoutIdleCredits(const Plan& plan);

/// The same plan in as few and large chunks as it has without cutting any differently.
Plan withLargestChunks(const Plan& plan);

/// The same plan with puts in place of stores, if it is right so: then it does not need memory that
/// the ranks share. Takes a verification.
Plan withoutIdleStores(const Plan& plan);

/// The same plan, but each step that reduces takes its sources in the order of the ranks that they
/// come from. So ranks that begin with their own contribution get the same bits.
Plan withSumsInRankOrder(const Plan& plan);

}  // namespace ctran::plan
