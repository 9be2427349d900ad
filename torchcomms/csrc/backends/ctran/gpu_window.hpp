#pragma once

#include <memory>

#include "torchcomms/csrc/backends/ctran/backend.hpp"
#include "torchcomms/csrc/backends/gpu/window.hpp"

namespace torch::comms {

/// Makes a window of `backend`, which works on GPUs and outlives the window. Its operations are the
/// device's own copies and stream operations; its ranks meet through the engine's communicator.
std::shared_ptr<TorchCommWindow> makeGpuWindow(CtranBackend& backend);

}  // namespace torch::comms
