#pragma once

#include <c10/core/Device.h>

#include "ctran/gpu/driver.h"

namespace torch::comms::stream {

/// The stream that torch has as current for a device on this thread, as the driver knows it.
ctran::gpu::Stream currentStream(c10::Device device);

/// The device on which a communicator works when it was asked for one without an index: the one
/// that is current, unless that is still the first; then each rank takes its own.
c10::Device withIndex(c10::Device device, int rank);

}  // namespace torch::comms::stream
