#include "ctran/gpu/libraries.h"

#include <dlfcn.h>

#include "ctran/base/config.h"

namespace ctran::gpu {

namespace {

const ConfigString kCudaHome{
    "CUDA_HOME", "", "Where CUDA is installed: libnvrtc is looked for in its lib64 and lib."};
const ConfigString kNcclHome{
    "NCCL_HOME", "",
    "Where NCCL is installed: where torch has loaded none, it is looked for in its lib64 and lib."};
const ConfigString kRocmHome{
    "ROCM_HOME", "",
    "Where ROCm is installed: where torch has loaded none, RCCL and the HIP runtime are looked for "
    "in its lib64 and lib."};

const ConfigString& variableOf(Home home) {
  if (home == Home::Cuda) return kCudaHome;
  return home == Home::Nccl ? kNcclHome : kRocmHome;
}

}  // namespace

std::vector<std::string> libraryFolders(Home home) {
  const std::string root = variableOf(home).get();
  if (root.empty()) return {};
  return {root + "/lib64/", root + "/lib/"};
}

void* openLibrary(const std::vector<const char*>& names, Home home, std::string& reasons) {
  for (const char* name : names) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return library;
  }
  std::vector<std::string> folders = libraryFolders(home);
  folders.emplace_back();
  for (const std::string& folder : folders) {
    for (const char* name : names) {
      if (void* library = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
      reasons += std::string("\n  ") + dlerror();
    }
  }
  return nullptr;
}

}  // namespace ctran::gpu
