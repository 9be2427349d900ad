#include <dlfcn.h>

#include <cctype>
#include <comms/torchcomms/TorchCommFactory.hpp>
#include <comms/torchcomms/TorchCommPlugin.hpp>
#include <mutex>

#include "ctran/base/config_sources.h"
#include "ctran/base/error.h"
#include "torchcomms/csrc/backends/plugin/backend.hpp"

namespace torch::comms {

namespace {

std::string mapped(const std::string& name, int (*letter)(int)) {
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    text += std::isalnum(byte) != 0 ? static_cast<char>(letter(byte)) : '_';
  }
  return text;
}

[[noreturn]] void fail(const std::string& backend, const std::string& why,
                       const std::string& hint = {}) {
  throw ctran::Error(ctran::ErrorKind::Unsupported, "Backend '" + backend + "': " + why, {}, {},
                     hint);
}

void* open(const std::string& backend, const char* path) {
  // Never closed: code of the library may run until the process ends.
  void* library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    fail(backend, "cannot load " + std::string(path) + ": " + (why ? why : "no reason given"),
         "set " + pluginVariable(backend) + " to the path of the plug-in");
  }
  return library;
}

void registerCpp(const std::string& backend, const DynamicLoaderInterface& loader) {
  const char* version = loader.get_supported_version ? loader.get_supported_version() : nullptr;
  if (version == nullptr || version != TORCHCOMM_BACKEND_ABI_VERSION) {
    fail(backend,
         "ABI version mismatch: " + std::string(TORCHCOMM_BACKEND_ABI_VERSION) +
             " != " + (version ? version : "none"),
         "compile the plug-in with the headers of this torchcomms, or use comms/torchcomms/"
         "plugin.h, which needs no exact version");
  }
  if (loader.new_comm == nullptr || loader.destroy_comm == nullptr) {
    fail(backend, "its loader lacks new_comm or destroy_comm");
  }
  TorchCommFactory::get().register_backend(backend, [backend, loader] {
    TorchCommBackend* made = loader.new_comm();
    if (made == nullptr) fail(backend, "new_comm of the plug-in returned nothing");
    return std::shared_ptr<TorchCommBackend>(made, loader.destroy_comm);
  });
}

}  // namespace

std::string pluginVariable(const std::string& backend) {
  return "TORCHCOMMS_BACKEND_LIB_PATH_" + mapped(backend, &std::toupper);
}

bool loadPlugin(const std::string& backend) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const std::string path = ctran::configText(pluginVariable(backend).c_str()).first;
  if (path.empty()) return false;
  if (TorchCommFactory::get().is_backend_registered(backend)) return true;
  void* library = open(backend, path.c_str());
  const std::string suffix = mapped(backend, &std::tolower);
  if (void* symbol = ::dlsym(library, ("create_dynamic_loader_" + suffix).c_str())) {
    registerCpp(backend, reinterpret_cast<DynamicLoaderInterface (*)()>(symbol)());
  } else if (void* found = ::dlsym(library, ("torchcomms_plugin_" + suffix).c_str())) {
    registerPlugin(backend, reinterpret_cast<PluginEntry>(found));
  } else {
    fail(backend, path + " has neither create_dynamic_loader_" + suffix +
                      " nor torchcomms_plugin_" + suffix);
  }
  return true;
}

}  // namespace torch::comms
