#pragma once

/// CUDA's names: of CUDA where nvcc compiles, or where MSCCLPP_USE_CUDA is defined, else of the
/// host, on which kernels run where there is no GPU.
#if defined(__CUDACC__) || defined(MSCCLPP_USE_CUDA)
#include <cuda_runtime.h>
using CUdeviceptr = unsigned long long;
#else
#include <mscclpp/host/cuda.hpp>
#endif
