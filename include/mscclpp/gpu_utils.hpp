#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <mscclpp/core.hpp>
#include <mscclpp/gpu.hpp>

/// Throws mscclpp::CudaError with the call's text.
#define MSCCLPP_CUDATHROW(call)                                                            \
  do {                                                                                     \
    const cudaError_t mscclppError = (call);                                               \
    if (mscclppError != cudaSuccess) {                                                     \
      throw mscclpp::CudaError(std::string(#call ": ") + cudaGetErrorString(mscclppError), \
                               static_cast<int>(mscclppError));                            \
    }                                                                                      \
  } while (false)

namespace mscclpp {

/// False: multicast is never used.
inline bool isNvlsSupported() { return false; }
inline bool isCuMemMapAllocated(void*) { return false; }

namespace detail {

/// Zeros that other ranks of the host can map, where such kernels reach them.
MSCCLPP_API std::shared_ptr<void> allocateMappable(size_t bytes, DeviceType kernels);

/// Memory that such kernels of this rank reach; zeros.
MSCCLPP_API std::shared_ptr<void> allocateLocal(size_t bytes, DeviceType kernels);

/// On a stream of its own, while others capture too; returns when it has ended.
MSCCLPP_API void copy(void* to, const void* from, size_t bytes, DeviceType kernels);

/// Of so many elements. Throws Error(InvalidUsage) if no memory has so many.
template <class T>
size_t bytesOf(size_t count) {
  if (count <= SIZE_MAX / 2 / sizeof(T)) return count * sizeof(T);
  throw Error(std::to_string(count) + " elements are more than any memory has",
              ErrorCode::InvalidUsage);
}

}  // namespace detail

/// `nelems` elements, zeros, that other ranks can map: of the GPU that is current, or of the host,
/// as kernels run. `data()` of a registered one works there.
template <class T = char>
class GpuBuffer {
 public:
  explicit GpuBuffer(size_t nelems)
      : nelems_(nelems),
        memory_(detail::allocateMappable(detail::bytesOf<T>(nelems), kKernelDevice)) {}

  size_t nelems() const { return nelems_; }
  size_t bytes() const { return nelems_ * sizeof(T); }
  T* data() { return static_cast<T*>(memory_.get()); }
  const T* data() const { return static_cast<const T*>(memory_.get()); }
  std::shared_ptr<T> memory() { return std::static_pointer_cast<T>(memory_); }

 private:
  size_t nelems_;
  std::shared_ptr<void> memory_;
};

/// `count` elements that kernels of this rank reach; zeros.
template <class T>
std::shared_ptr<T[]> gpuCallocShared(size_t count = 1) {
  const std::shared_ptr<void> memory =
      detail::allocateLocal(detail::bytesOf<T>(count), kKernelDevice);
  return {memory, static_cast<T*>(memory.get())};
}

template <class T>
void gpuMemcpyAsync(T* to, const T* from, size_t count, cudaStream_t stream,
                    cudaMemcpyKind kind = cudaMemcpyDefault) {
  MSCCLPP_CUDATHROW(cudaMemcpyAsync(to, from, count * sizeof(T), kind, stream));
}
template <class T>
void gpuMemcpy(T* to, const T* from, size_t count, cudaMemcpyKind = cudaMemcpyDefault) {
  detail::copy(to, from, count * sizeof(T), kKernelDevice);
}

}  // namespace mscclpp
