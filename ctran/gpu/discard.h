#pragma once

#include <functional>
#include <utility>

#include "ctran/gpu/runtime.h"

namespace ctran::gpu {

/// Calls `free` later, with `device` current, at a moment when none of our kernels run. It is for
/// cuMemFree, cuMemFreeHost, cuMemHostUnregister and cuIpcCloseMemHandle. These wait until all that
/// runs on the process's GPUs has ended, and keep every other thread out of the driver meanwhile;
/// so they would wait for a kernel that waits for another rank, and nothing could end that kernel.
/// `free` is called at once if no thread looks for such moments, and never if the process ends
/// before.
void discard(const Runtime& runtime, int device, std::function<void()> free) noexcept;
/// Does the same for CUDA.
void discard(int device, std::function<void()> free) noexcept;

/// Is called by the thread that looks for such moments; from now on it calls freeDiscarded.
/// `isIdle` says whether no operation runs.
void deferDiscarding(std::function<bool()> isIdle) noexcept;
/// Frees what has been discarded, unless a thread launches an operation, or one runs, or a kernel
/// that keepUntilReached() knows of.
void freeDiscarded() noexcept;
/// Nothing is freed before the stream has got to this point: for kernels that wait for others and
/// are no operations of a queue. A stream that captures is left as it is.
void keepUntilReached(Stream stream) noexcept;

/// A thread launches an operation: it exists from before the first call of the driver until whoever
/// looks for such moments can see that the operation runs. Nothing is freed meanwhile, which would
/// wait for the part that has been launched and keep the thread from launching the rest.
class Launching {
 public:
  /// Waits while something is being freed.
  Launching() noexcept;
  ~Launching();
  Launching(Launching&& other) noexcept : counts_(std::exchange(other.counts_, false)) {}
  Launching& operator=(Launching&&) = delete;

 private:
  bool counts_ = true;
};

}  // namespace ctran::gpu
