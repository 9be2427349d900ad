#pragma once

#include <string>
#include <vector>

namespace ctran::gpu {

/// Where libnvrtc is looked for, in this order (the first that loads is used):
///   1. the file named by CTRAN_NVRTC_LIBRARY, and nothing else when that is set;
///   2. a libnvrtc this process has already loaded (torch does so at its own first compile);
///   3. `nvidia/cu13/lib` and `nvidia/cuda_nvrtc/lib` in every site-packages directory that a
///   loaded
///      library lives in: torch's CUDA wheels bring NVRTC there, beside torch;
///   4. `$CUDA_HOME/lib64`, `$CUDA_HOME/lib`, `$CUDA_PATH/lib64`, `/usr/local/cuda/lib64`;
///   5. the loader's own search path.
/// Within a directory: libnvrtc.so.13, then .so.12.
std::vector<std::string> nvrtcCandidates();

struct CompileRequest {
  std::string name;                  ///< for messages and the cache's file name: "all_reduce"
  std::string source;                ///< may include any of deviceSources() by its path
  std::string architecture;          ///< the exact one: "sm_90"
  std::vector<std::string> defines;  ///< "CTRAN_WORLD=4"
};

/// Returns machine code (a cubin) for exactly that architecture, from the cache on disk or the
/// compiler. Needs no GPU. Throws Error(Unsupported) if there is no NVRTC (naming the places looked
/// at), and Error(InvalidArgument) with the compiler's log if the source does not compile.
std::string compile(const CompileRequest& request);

/// Compiles as `compile` does, without a cache.
std::string compileUncached(const CompileRequest& request);

/// Returns (major, minor) of the compiler in use.
std::pair<int, int> nvrtcVersion();

}  // namespace ctran::gpu
