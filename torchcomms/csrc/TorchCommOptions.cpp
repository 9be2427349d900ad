#include <comms/torchcomms/TorchCommOptions.hpp>

#include "torchcomms/csrc/config.hpp"

namespace torch::comms {

CommOptions::CommOptions()
    : abort_process_on_timeout_or_error(kAbortOnError.get()), timeout(kTimeoutSeconds.get()) {}

bool CommOptions::operator==(const CommOptions& other) const {
  return abort_process_on_timeout_or_error == other.abort_process_on_timeout_or_error &&
         timeout == other.timeout && store == other.store &&
         enable_reconfigure == other.enable_reconfigure &&
         is_high_priority_stream == other.is_high_priority_stream && hints == other.hints &&
         name == other.name && rank == other.rank && size == other.size;
}

}  // namespace torch::comms
