#pragma once

#include <chrono>

namespace torch::comms {

/// What longer timeouts count as: programs write "for ever" as they like (`timedelta.max`), and
/// clocks count nanoseconds in 64 bits.
inline constexpr std::chrono::milliseconds kLongestTimeout{1'000'000'000'000};

}  // namespace torch::comms
