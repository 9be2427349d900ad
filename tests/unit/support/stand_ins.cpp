#include "tests/unit/support/stand_ins.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <stdexcept>
#include <utility>

#include "ctran/gpu/nvrtc.h"

namespace ctran::testing {

const gpu::Runtime& standInRuntime() {
  static const gpu::Runtime& runtime = []() -> const gpu::Runtime& {
    ::setenv("CTRAN_CUDA_LIBRARY", STAND_IN_CUDA, 1);
    const gpu::Runtime& loaded = gpu::Runtime::of(gpu::Platform::Cuda);
    ::unsetenv("CTRAN_CUDA_LIBRARY");
    return loaded;
  }();
  return runtime;
}

unsigned standInSetUps() {
  static void* const library = ::dlopen(STAND_IN_CUDA, RTLD_NOW | RTLD_LOCAL);
  unsigned count = 0;
  for (const char* name : {"standInModulesLoaded", "standInMemoryMade"}) {
    count += reinterpret_cast<unsigned (*)()>(::dlsym(library, name))();
  }
  return count;
}

void useStandInCompiler() {
  ::setenv("CTRAN_NVRTC_LIBRARY", STAND_IN_NVRTC, 1);
  const std::pair version = gpu::nvrtcVersion();
  ::unsetenv("CTRAN_NVRTC_LIBRARY");
  if (version != std::pair(0, 1)) throw std::runtime_error("NVIDIA's compiler has been loaded");
}

}  // namespace ctran::testing
