#pragma once

#include <cstdint>

/// After so many seconds a wait on a GPU without a WaitLimit ends the kernel, by a trap: the next
/// call of CUDA says that it has failed. A program may define another number. On the host it throws
/// Error. Twice MSCCLPP_TIMEOUT, which is 60 by default: a wait with a limit ends before those of
/// other blocks for the one that waits, and names the rank.
#ifndef MSCCLPP_WAIT_SECONDS
#define MSCCLPP_WAIT_SECONDS 120
#endif

namespace mscclpp {

/// Values of WaitLimit::failed.
enum class WaitEnd : uint32_t {
  None = 0,    ///< waits go on
  Failed = 1,  ///< something has failed before
  Lost = 2,    ///< the connection to the rank is lost: its process has ended, or the network fails
  Closed = 3,  ///< the rank has closed the connection
  Aborted = 4  ///< a rank has called abort, or has gone
};

/// What ends a wait other than what it waits for. It lies where host and device see it, and every
/// handle that waits has a pointer to one. Null: see MSCCLPP_WAIT_SECONDS.
///
/// On a GPU a wait that has passed its time sets `failed` and returns: the results of that kernel
/// are worthless, but it ends. On the host it throws Error.
struct WaitLimit {
  uint32_t failed = 0;       ///< set, to a WaitEnd: every wait ends at once
  int32_t peer = -1;         ///< the rank that is waited for; -1: several, or none; -2: the proxy
  int32_t peerProcess = -1;  ///< on the host: readable when that rank's process has ended (a pidfd)
  int64_t timeoutNanos = 0;  ///< of one wait; 0: no end
};

}  // namespace mscclpp
