#pragma once

#include <chrono>
#include <comms/torchcomms/TorchWork.hpp>
#include <functional>
#include <optional>

namespace torch::comms::stream {

/// Calls `then`, which must not block, as soon as `holds` does: at once, or on a thread that serves
/// all such calls, within a millisecond.
void whenHolds(std::function<bool()> holds, TorchWork::Hook then);
/// Blocks under HostWait until `holds` does, at most so long; whether it does.
bool waitUntil(const std::function<bool()>& holds, std::optional<std::chrono::milliseconds> limit);

}  // namespace torch::comms::stream
