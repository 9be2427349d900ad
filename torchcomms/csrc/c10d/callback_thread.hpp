#pragma once

#include <chrono>
#include <functional>

namespace torch::comms {

/// Starts the thread of postCallback, if it does not run yet. Throws ctran::Error if that fails.
void startCallbacks();

/// Runs `task` on a thread that this process has for the callbacks of works: they may take locks
/// (the interpreter's) and wait for other operations, which threads that make operations progress
/// must not do. Tasks begin in the order of the calls, and one ends before the next begins: ranks
/// whose operations end in one order begin those of their callbacks in one order. A task that
/// `isAwaited` by another one begins at once. `task` must not throw. Any thread, after
/// startCallbacks.
void postCallback(std::function<void()> task, bool isAwaited);

/// Whether a callback asks, which will wait for what it asks for: a task is posted for it then.
bool expectCallback();

/// At the end of the process, before the interpreter's: lets those tasks end that there are, for as
/// long as that; none begins any more.
void retireCallbacks(std::chrono::milliseconds limit);

}  // namespace torch::comms
