#pragma once

#include "ctran/collective/hosts_context.h"
#include "ctran/collective/shm_context.h"
#include "ctran/plan/plan.h"

namespace ctran {

/// Executes `collective.plan` over shared memory. The scratch of a rank is the memory of its
/// rounds; a channel is a counter of the rank at which it starts. Large data is cut into units that
/// fit the scratch, and the plan is executed once for each; a rank's lanes take turns on the thread
/// that drives the operation.
Task runPlan(ShmContext& shm, const Collective& collective);

/// The same for ranks of several hosts: what goes from one to another is messages, see
/// PlanMessages; ranks of one host share memory as above.
Task runPlan(HostsContext& hosts, const Collective& collective);

/// Whether that is possible for a call that the plan can serve.
bool canSpanHosts(const PlanAlgorithm& algorithm, const Collective& collective);

/// How many units a block of so many elements is cut into.
uint64_t unitsOf(const plan::Plan& plan, size_t count, size_t elementBytes);

/// The rank that holds up a plan, for error messages: from whom `waiting` waits for, back along
/// what that one waits for, to one that waits for nothing.
int planCulprit(ShmContext& shm, const Collective& collective, const Condition& waiting);

}  // namespace ctran
