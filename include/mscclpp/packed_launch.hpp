#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <mscclpp/core.hpp>
#include <mscclpp/gpu.hpp>

/// A kernel whose arguments come as bytes, each aligned as its type wants it: what
/// mscclpp.utils.pack of Python makes, and mscclpp.utils.Kernel launches.
namespace mscclpp {

namespace detail {

/// Where each argument is, and behind them the end.
template <class... Arguments>
constexpr std::array<size_t, sizeof...(Arguments) + 1> argumentOffsets() {
  std::array<size_t, sizeof...(Arguments) + 1> offsets{};
  size_t at = 0, i = 0;
  ((offsets[i++] = (at + alignof(Arguments) - 1) / alignof(Arguments) * alignof(Arguments),
    at = offsets[i - 1] + sizeof(Arguments)),
   ...);
  offsets[i] = at;
  return offsets;
}

}  // namespace detail

/// Throws Error(InvalidUsage) if the kernel takes other arguments than `bytes` of them, CudaError
/// if it cannot be launched, and on the host what the kernel throws.
template <class... Arguments>
void launchPacked(void (*kernel)(Arguments...), const void* packed, size_t bytes, unsigned blocks,
                  unsigned threads, size_t sharedBytes, cudaStream_t stream) {
  constexpr auto kOffsets = detail::argumentOffsets<Arguments...>();
  if (bytes != kOffsets.back()) {
    throw Error(
        "the kernel takes " + std::to_string(kOffsets.back()) + " bytes of arguments, not " +
            std::to_string(bytes) +
            ": an int is 4, ctypes.c_size_t and whatever has an address 8, a handle its raw",
        ErrorCode::InvalidUsage);
  }
  // A copy is aligned.
  alignas(16) std::byte arguments[kOffsets.back() + 1];
  std::memcpy(arguments, packed, bytes);
#if defined(__CUDACC__)
  [&]<size_t... I>(std::index_sequence<I...>) {
    void* pointers[] = {static_cast<void*>(arguments + kOffsets[I])..., nullptr};
    const auto* const function = reinterpret_cast<const void*>(kernel);
    constexpr size_t kWithoutAsking = 48 << 10;
    cudaError_t error = cudaSuccess;
    if (sharedBytes > kWithoutAsking) {
      error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(sharedBytes));
    }
    if (error == cudaSuccess) {
      error =
          cudaLaunchKernel(function, dim3(blocks), dim3(threads), pointers, sharedBytes, stream);
    }
    if (error != cudaSuccess) {
      cudaGetLastError();
      throw CudaError(std::string("launching a kernel: ") + cudaGetErrorString(error),
                      static_cast<int>(error));
    }
  }
  (std::index_sequence_for<Arguments...>());
#else
  static_cast<void>(stream);
  [&]<size_t... I>(std::index_sequence<I...>) {
    host::launch(blocks, threads, sharedBytes, [&] {
      kernel(*reinterpret_cast<const std::remove_cvref_t<Arguments>*>(arguments + kOffsets[I])...);
    });
  }
  (std::index_sequence_for<Arguments...>());
#endif
}

}  // namespace mscclpp
