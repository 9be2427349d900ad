#pragma once

#include <c10/core/Device.h>

#include "ctran/gpu/driver.h"

namespace torch::comms::stream {

/// The stream that torch has as current for a device on this thread, as the driver knows it.
ctran::gpu::Stream currentStream(c10::Device device);

/// The device on which a communicator works. Without an index: the one that is current, unless that
/// is still the first; then each rank takes its own, which is current for this thread from then on.
c10::Device chooseDevice(c10::Device device, int rank);

}  // namespace torch::comms::stream
