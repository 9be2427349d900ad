#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ctran::gpu {

/// The folders that environment variables name: CUDA_HOME, NCCL_HOME, ROCM_HOME.
enum class Home : uint8_t { Cuda, Nccl, Rocm };

/// Returns where libraries lie below a home: lib64 and lib, each with a slash at its end. Empty if
/// the variable is not set.
std::vector<std::string> libraryFolders(Home home);

/// Opens the first of `names` that exists: among the libraries that this process has loaded, then
/// in `home`, then where the loader looks. Returns null if there is none; `reasons` then has a line
/// for each attempt.
void* openLibrary(const std::vector<const char*>& names, Home home, std::string& reasons);

}  // namespace ctran::gpu
