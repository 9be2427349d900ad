#pragma once

#include <c10/core/Device.h>

#include "ctran/gpu/driver.h"
#include "ctran/gpu/runtime.h"

namespace torch::comms::stream {

/// What drives the GPUs of that kind; null for devices that are no GPU's.
const ctran::gpu::Runtime* runtimeOf(c10::Device device);

/// The stream that torch has as current for a device on this thread, as the driver knows it.
ctran::gpu::Stream currentStream(c10::Device device);

/// Whether it captures.
bool isCapturing(c10::Device device);

/// The device on which a communicator works. Without an index: the one that is current, unless that
/// is still the first; then each rank takes its own, which is current for this thread from then on.
c10::Device chooseDevice(c10::Device device, int rank);

}  // namespace torch::comms::stream
