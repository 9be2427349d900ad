#pragma once

#include <mscclpp/gpu.hpp>

/// Whether functions of kernels are compiled here: by nvcc for GPUs, else for the host.
#if defined(__CUDACC__)
#define MSCCLPP_DEVICE_CUDA
#define MSCCLPP_DEVICE_INLINE __forceinline__ __device__
#define MSCCLPP_HOST_DEVICE_INLINE __forceinline__ __host__ __device__
#else
#define MSCCLPP_DEVICE_HOST
#define MSCCLPP_DEVICE_INLINE inline
#define MSCCLPP_HOST_DEVICE_INLINE inline
#endif
#define MSCCLPP_DEVICE_COMPILE
