#pragma once

#include <string>

/// libtorchcomms_nccl: plug-ins for NCCL, which itself loads the library where NCCL_PROFILER_PLUGIN
/// or NCCL_TUNER_PLUGIN names it. It needs neither torch nor NCCL.
namespace torchcomms::nccl_plugin {

/// Where this library is.
std::string path();

/// TORCHCOMMS_NCCL_TUNING.
std::string tuningFile();

/// Names this library to NCCL where our variables ask for it and NCCL's name nothing. Before NCCL
/// makes the first communicator of the process.
void offer();

}  // namespace torchcomms::nccl_plugin
