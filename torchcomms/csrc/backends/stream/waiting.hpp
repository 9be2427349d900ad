#pragma once

#include <chrono>
#include <comms/torchcomms/TorchWork.hpp>
#include <functional>
#include <optional>

namespace torch::comms::stream {

/// Calls `then`, which must not block, as soon as `holds()` is true: at once, or within a
/// millisecond on a thread that serves all such calls.
void whenHolds(std::function<bool()> holds, TorchWork::Hook then);
/// Blocks under HostWait until `holds()` is true, at most for `limit`. Returns whether it is.
bool waitUntil(const std::function<bool()>& holds, std::optional<std::chrono::milliseconds> limit);

}  // namespace torch::comms::stream
