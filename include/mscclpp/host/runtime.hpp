#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include <mscclpp/wait_limit.hpp>

#define MSCCLPP_HOST_API __attribute__((visibility("default")))

/// Kernels on a machine without a GPU: each block is a thread of the host, on which the threads of
/// the block take turns. They do so where they wait, and nowhere else.

struct uint3 {
  unsigned int x, y, z;
};

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};

// The names that kernels know them by: of the thread whose turn it is.
MSCCLPP_HOST_API extern __thread uint3 threadIdx;
MSCCLPP_HOST_API extern __thread uint3 blockIdx;
MSCCLPP_HOST_API extern __thread dim3 blockDim;
MSCCLPP_HOST_API extern __thread dim3 gridDim;

namespace mscclpp::host {

/// Runs `kernel` once for each thread of each block; returns when all have ended. Throws the first
/// exception of one, which ends the waits of the others.
MSCCLPP_HOST_API void launch(dim3 grid, dim3 block, size_t sharedBytes,
                             const std::function<void()>& kernel);

/// The block's memory of `sharedBytes`.
MSCCLPP_HOST_API void* dynamicShared();

/// Waits for the other threads of the block.
MSCCLPP_HOST_API void syncThreads();
/// Waits for the other threads of the warp, which is 32 consecutive threads.
MSCCLPP_HOST_API void syncWarp();
/// What thread `lane` of this warp passes as `value`. All threads of the warp call it.
MSCCLPP_HOST_API uint64_t shuffle(uint64_t value, int lane);

/// Lets other threads of the block, and other processes, run.
MSCCLPP_HOST_API void yield();

/// A wait for what another thread, block or process does: the waiting thread calls `pause` again
/// and again.
class MSCCLPP_HOST_API Waiting {
 public:
  explicit Waiting(WaitLimit* limit) : limit_(limit) {}
  /// Lets others run. Throws Error when the limit has passed, when the peer's process has ended, or
  /// its connection, or when another thread of the launch has failed.
  void pause();
  /// Throws Error, as so many spins were all that the wait may take.
  [[noreturn]] void giveUp(int64_t spins) const;

 private:
  void look();

  WaitLimit* const limit_;
  uint64_t spins_ = 0;
  int64_t began_ = 0;
  int64_t checked_ = 0;
  int abortedChecks_ = 0;
  bool hasSeenEnd_ = false;
};

}  // namespace mscclpp::host
