#pragma once

#include <chrono>
#include <functional>

namespace torch::comms {

/// Starts the thread of postCallback, if it does not run yet. Throws ctran::Error if that fails.
void startCallbacks();

/// Runs `task` on a thread that this process has for the callbacks of works: they may take locks
/// (the interpreter's) and wait for other operations, which threads that make operations progress
/// must not do. Tasks begin in the order of the calls, and one ends before the next begins, unless
/// it takes long: it may wait for what another task does. One that is awaited by a callback that
/// runs begins at once. `task` must not throw. Any thread, after startCallbacks.
void postCallback(std::function<void()> task, bool isAwaited);

/// At the end of the process, before the interpreter's: lets those tasks end that there are, for as
/// long as that; none begins any more.
void retireCallbacks(std::chrono::milliseconds limit);

/// Whether this thread runs callbacks.
bool isCallbackThread();

}  // namespace torch::comms
