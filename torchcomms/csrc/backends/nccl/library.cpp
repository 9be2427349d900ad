#include "torchcomms/csrc/backends/nccl/library.hpp"

#include <dlfcn.h>

#include <map>
#include <mutex>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/gpu/libraries.h"
#include "torchcomms/csrc/backends/nccl/vendors.hpp"
#include "torchcomms/csrc/nccl_plugin/plugin.h"

namespace torch::comms::nccl {

namespace {

using ctran::gpu::Home;

/// The oldest version with everything that the backend needs: it has ncclCommSplit.
constexpr int kOldest = 21800;

[[noreturn]] void notFound(const Vendor& vendor, const std::string& reasons) {
  throw ctran::Error(ctran::ErrorKind::Unsupported,
                     std::string("Backend ") + vendor.backend + " needs the library " +
                         vendor.names.front() + ", which could not be loaded:" + reasons,
                     {}, {},
                     std::string(vendor.hint) + ", or set " + vendor.variable + " to its path");
}

void* open(const Vendor& vendor) {
  if (vendor.platform == ctran::gpu::Platform::Cuda) torchcomms::nccl_plugin::offer();
  if (const std::string path = libraryPath(vendor); !path.empty()) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    notFound(vendor, std::string("\n  ") + dlerror());
  }
  const bool nvidia = vendor.platform == ctran::gpu::Platform::Cuda;
  const Home home = nvidia ? Home::Nccl : Home::Rocm;
  std::string reasons;
  if (void* library = ctran::gpu::openLibrary(vendor.names, home, reasons)) return library;
  notFound(vendor, reasons);
}

std::string pathOf(void* symbol, const Vendor& vendor) {
  Dl_info info{};
  return dladdr(symbol, &info) != 0 && info.dli_fname ? info.dli_fname : vendor.names.front();
}

Library load(const Vendor& vendor) {
  void* handle = open(vendor);  // stays loaded: its threads may run until the process ends
  Library library;
  library.vendor = &vendor;
  std::string missing;
  const auto find = [&](auto& function, const char* symbol, bool required) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, symbol));
    if (!function && required) missing += std::string(missing.empty() ? "" : ", ") + symbol;
  };
#define TORCHCOMMS_FIND(name, symbol, ...) find(library.name, symbol, true);
  TORCHCOMMS_NCCL_FUNCTIONS(TORCHCOMMS_FIND)
#undef TORCHCOMMS_FIND
#define TORCHCOMMS_FIND(name, symbol, ...) find(library.name, symbol, false);
  TORCHCOMMS_NCCL_OPTIONAL_FUNCTIONS(TORCHCOMMS_FIND)
#undef TORCHCOMMS_FIND
  find(library.getErrorString, "ncclGetErrorString", true);
  find(library.getLastError, "ncclGetLastError", true);
  if (library.getVersion) {
    library.getVersion(&library.version);
    library.path = pathOf(reinterpret_cast<void*>(library.getVersion), vendor);
  }
#define TORCHCOMMS_FORGET(name, symbol, since, ...) \
  if (library.version < (since)) library.name = nullptr;
  TORCHCOMMS_NCCL_OPTIONAL_FUNCTIONS(TORCHCOMMS_FORGET)
#undef TORCHCOMMS_FORGET
  if (!missing.empty() || library.version < kOldest) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       std::string("Backend ") + vendor.backend + " needs " + vendor.label + " " +
                           spellVersion(kOldest) + " or newer; " +
                           (library.path.empty() ? "the library" : library.path) + " is " +
                           library.versionText() + (missing.empty() ? "" : " and lacks " + missing),
                       {}, {}, vendor.hint);
  }
  return library;
}

}  // namespace

const Library& Library::of(const Vendor& vendor) {
  static std::mutex mutex;
  static std::map<std::string, Library> loaded;
  const std::lock_guard lock(mutex);
  const auto found = loaded.find(vendor.backend);
  if (found != loaded.end()) return found->second;
  return loaded.emplace(vendor.backend, load(vendor)).first->second;
}

std::string Library::versionText() const { return spellVersion(version); }

void Library::tooOld(const char* what, int since) const {
  throw ctran::Error(ctran::ErrorKind::Unsupported,
                     std::string(what) + " needs " + vendor->label + " " + spellVersion(since) +
                         " or newer, but this is " + versionText() + " (" + path + ")",
                     {}, {}, vendor->hint);
}

std::string spellVersion(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace torch::comms::nccl
