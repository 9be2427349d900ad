#pragma once

#include <functional>

namespace torch::comms {

/// Starts the thread of postCallback, if it does not run yet. Throws ctran::Error if that fails.
void startCallbacks();

/// Runs `task`, in the order of the calls, on a thread that this process has for the callbacks of
/// works: they may take locks (the interpreter's) and wait for other operations, which threads that
/// make operations progress must not do. `task` must not throw. Any thread, after
/// startCallbacks.
void postCallback(std::function<void()> task);

}  // namespace torch::comms
