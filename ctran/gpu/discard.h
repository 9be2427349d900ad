#pragma once

#include <functional>

#include "ctran/gpu/runtime.h"

namespace ctran::gpu {

/// For cuMemFree, cuMemFreeHost, cuMemHostUnregister and cuIpcCloseMemHandle: they wait until all
/// that runs on the process's GPUs has ended, and keep every other thread out of the driver
/// meanwhile: a kernel that waits for another rank would be waited for, and could not be ended.
/// `free` is called, with `device` current, at a moment in which nothing of ours runs; at once if
/// nobody looks for such moments, and never if the process ends before.
void discard(const Runtime& runtime, int device, std::function<void()> free) noexcept;
/// CUDA's.
void discard(int device, std::function<void()> free) noexcept;

/// Of whoever looks for such moments: from now on it calls freeDiscarded.
void deferDiscarding() noexcept;
void freeDiscarded() noexcept;

}  // namespace ctran::gpu
