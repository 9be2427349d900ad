#pragma once

#include <chrono>
#include <string>

#include "tests/unit/verbs/side.h"

namespace ibverbx {

/// Runs a command of the shell, or fails the test.
void shell(const std::string& command);

/// A line that the kernel says of the device, as in "ports/1/state".
std::string sysfs(const IbvContext& context, const std::string& file);

/// The next event, within some seconds; the test fails if there is none.
IbvAsyncEvent nextEvent(const IbvContext& context);

/// The next event of one kind; what comes before it is thrown away.
IbvAsyncEvent nextEvent(const IbvContext& context, ibv_event_type type);

inline double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace ibverbx
