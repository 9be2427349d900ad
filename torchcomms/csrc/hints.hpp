#pragma once

#include <comms/torchcomms/TorchCommOptions.hpp>

namespace torch::comms {

/// Throws ctran::Error for a hint that would be read, and that no call, or communicator, knows.
void checkHintsOfCall(const Hints& hints);
void checkHintsOfCommunicator(const Hints& hints);

}  // namespace torch::comms
