#pragma once

#include <comms/torchcomms/TorchCommBackend.hpp>
#include <string>

namespace torch::comms {

/// What a plug-in written in C++ is: a library whose function
///
///     extern "C" DynamicLoaderInterface create_dynamic_loader_<name>()
///
/// returns this, compiled with the headers of this very build and its torch. Its path is in the
/// environment: TORCHCOMMS_BACKEND_LIB_PATH_<NAME>, the name in capitals with '_' for what is
/// neither letter nor digit; the same holds for <name> above, in lower case.
struct DynamicLoaderInterface {
  /// An object that has not been initialised.
  TorchCommBackend* (*new_comm)();
  void (*destroy_comm)(TorchCommBackend* comm);
  /// TORCHCOMM_BACKEND_ABI_VERSION as the plug-in was compiled.
  const char* (*get_supported_version)();
};

/// Loads the library that the environment names for `backend` and registers the backend, in C++ or
/// by plugin.h; false if the environment names none. The library stays loaded. Throws
/// ctran::Error when it cannot be used. Any thread.
bool loadPlugin(const std::string& backend);

/// TORCHCOMMS_BACKEND_LIB_PATH_<NAME>.
std::string pluginVariable(const std::string& backend);

}  // namespace torch::comms
