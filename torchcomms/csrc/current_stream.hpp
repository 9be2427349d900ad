#pragma once

#include <c10/core/Device.h>

#include "ctran/gpu/driver.h"
#include "ctran/gpu/runtime.h"

namespace torch::comms::stream {

/// Returns what drives the GPUs of that kind; null for devices that are not GPUs.
const ctran::gpu::Runtime* runtimeOf(c10::Device device);

/// Returns torch's current stream of a device on this thread, as the driver knows it.
ctran::gpu::Stream currentStream(c10::Device device);

/// Returns whether that stream captures.
bool isCapturing(c10::Device device);

/// Returns the device on which a communicator works. If `device` has no index, it is the current
/// one, unless that is still the first; then each rank takes its own device, which is current on
/// this thread from then on.
c10::Device chooseDevice(c10::Device device, int rank);

}  // namespace torch::comms::stream
