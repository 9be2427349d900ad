#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace mscclpp {

/// Who reaches a piece of memory: hosts of ranks, which map it from each other; kernels on a GPU,
/// and other ranks; kernels on GPUs and the host of this rank.
enum class LineKind { Shared, OnGpu, ForGpus };

/// Memory for little things, zeros, on cache lines of its own. It lies in a page, which lives as
/// long as one of its pieces.
std::shared_ptr<void> allocateLines(LineKind kind, size_t bytes, int gpu = -1);

template <class T>
std::shared_ptr<T> allocateLine(LineKind kind, int gpu = -1) {
  static_assert(std::is_trivially_destructible_v<T>);
  const std::shared_ptr<void> memory = allocateLines(kind, sizeof(T), gpu);
  return {memory, static_cast<T*>(memory.get())};
}

}  // namespace mscclpp
