#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ctran::gpu {

/// Folders that environment variables name: CUDA_HOME, NCCL_HOME, ROCM_HOME.
enum class Home : uint8_t { Cuda, Nccl, Rocm };

/// Where libraries lie below a home: lib64 and lib, each with a slash at its end. None if the
/// variable is not set.
std::vector<std::string> libraryFolders(Home home);

/// The first of `names` that there is: among the libraries that this process has loaded, then in
/// `home`, then where the loader looks. Null if there is none: then `reasons` has a line for each.
void* openLibrary(const std::vector<const char*>& names, Home home, std::string& reasons);

}  // namespace ctran::gpu
