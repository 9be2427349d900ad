#pragma once

#include "ctran/collective/hosts_context.h"
#include "ctran/collective/shm_context.h"
#include "ctran/plan/plan.h"

namespace ctran {

/// Executes `collective.plan` over shared memory. The scratch of a rank is the memory of its
/// rounds; a channel is a counter of the rank at which it starts. Large data is cut into units that
/// fit the scratch, and the plan is executed once for each. A rank's lanes take turns on the thread
/// that drives the operation.
Task runPlan(ShmContext& shm, const Collective& collective);

/// Executes the plan on ranks of several hosts: messages go from one host to another, see
/// PlanMessages; ranks of one host share memory as above.
Task runPlan(HostsContext& hosts, const Collective& collective);

/// Returns whether that is possible for a call that the plan can serve.
bool canSpanHosts(const PlanAlgorithm& algorithm, const Collective& collective);

/// Returns how many units a block of `count` elements is cut into.
uint64_t unitsOf(const plan::Plan& plan, size_t count, size_t elementBytes);

/// Returns the rank that holds up a plan, for error messages. It starts at the rank that `waiting`
/// waits for, and follows what each rank waits for to a rank that waits for nothing.
int planCulprit(ShmContext& shm, const Collective& collective, const Condition& waiting);

}  // namespace ctran
