#pragma once

namespace ctran {

/// A memory barrier on behalf of others: one thread pays so that all others need none. Every other
/// thread of every process that has joined behaves as if it had passed a full barrier at some
/// moment during `processBarrier`. (Linux calls it membarrier, "global expedited".)

/// Lets this process take part; false if the system cannot. Cheap when it has joined before.
bool joinProcessBarriers();
void processBarrier();

}  // namespace ctran
