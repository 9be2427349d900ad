// What the hostile member says: its process has a sendmsg of its own, which stands before the
// system's. The engine in it is as it is, passes the handshake, and takes part in everything.
#pragma once

#include "tests/hostile/scenario.h"

namespace ctran::testing {

/// From now on, in this process, the next frames are those of the state.
void beginLying(const Scenario& scenario);
/// On every connection at once, if the lie is one of extra frames.
void lieNow();
/// From now on nothing is changed any more. How many lies were told.
uint32_t endLying();

}  // namespace ctran::testing
