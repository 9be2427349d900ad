#pragma once

#include "ctran/base/config.h"
#include "ctran/engine/live_settings.h"

namespace torch::comms {

inline const ctran::ConfigBool kAbortOnError{
    "TORCHCOMM_ABORT_ON_ERROR", true,
    "Default of abort_process_on_timeout_or_error: whether an error that nobody is waiting for "
    "ends the process."};

using ctran::kTimeoutSeconds;

inline const ctran::ConfigSeconds kErrorGraceSeconds{
    "TORCHCOMM_ERROR_GRACE_SECONDS", 10,
    "How long the program may leave a failed operation unexamined before the process ends, where "
    "abort_process_on_timeout_or_error is on."};

}  // namespace torch::comms
