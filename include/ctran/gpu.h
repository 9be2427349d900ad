#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "ctran/communicator.h"

namespace ctran {

namespace gpu {
class Launching;
}

/// Programs that use CUDA pass its streams and pointers to communicators. For programs that do not,
/// this header has what is needed to try the engine on a GPU: building them needs neither CUDA's
/// headers nor its libraries.
namespace api {

/// Returns how many GPUs the driver shows to this process. Throws Error(Unsupported) without a
/// driver.
CTRAN_API int gpuCount();
/// Returns the name of a GPU, such as "NVIDIA H200".
CTRAN_API std::string gpuName(int device);
/// Returns what the links between the GPUs are like that the driver shows to this process: for each
/// pair whether one reaches the other's memory, whether atomically, and the rank of the link among
/// all, as "0-1:1,1,0". Two machines of the same GPUs with other links differ in it.
CTRAN_API std::string gpuLinks();
/// Returns the GPU that is current on this thread, or none if the thread has used none yet.
CTRAN_API std::optional<int> currentGpu();
/// Returns the GPU that has the memory at an address, or none for the host's memory; all memory is
/// the host's while the process does not use CUDA. Takes some hundred nanoseconds.
CTRAN_API std::optional<int> gpuOf(const void* memory);
/// Returns whether the stream captures: what is enqueued on it then becomes part of a graph.
CTRAN_API bool isCapturing(GpuStream stream);
/// Enqueues a copy on a stream of the GPU, between any two memories; while the stream captures, the
/// copy becomes part of the graph.
CTRAN_API void copyOn(GpuStream stream, int device, void* to, const void* from, size_t bytes);

/// A program that launches kernels of its own which wait for other ranks, or for a thread of this
/// process that uses the driver, holds one around the launch, with the GPU current. Some calls of
/// the driver, with which the engine frees memory, wait for all kernels and keep all threads out of
/// the driver; the engine makes none before what was launched has ended. Kernels that a graph
/// replays are not known to it.
class CTRAN_API GpuLaunch final {
 public:
  explicit GpuLaunch(GpuStream stream) noexcept;
  ~GpuLaunch();
  GpuLaunch(const GpuLaunch&) = delete;
  GpuLaunch& operator=(const GpuLaunch&) = delete;

 private:
  const GpuStream stream_;
  const std::unique_ptr<gpu::Launching> launching_;
};

/// A stream that does not wait for the default stream. Its functions may be called while the
/// calling thread captures, and are not captured; only `capture` does what it says.
class CTRAN_API OwnGpuStream final {
 public:
  /// `words` is how many calls of `set` may be under way before one has to wait for the first of
  /// them.
  explicit OwnGpuStream(int device, size_t words = 0);
  ~OwnGpuStream();
  OwnGpuStream(const OwnGpuStream&) = delete;
  OwnGpuStream& operator=(const OwnGpuStream&) = delete;

  GpuStream get() const;
  void copy(void* toDevice, const void* from, size_t bytes);
  /// Reads once all that the stream holds has ended.
  void read(void* to, const void* fromDevice, size_t bytes);
  /// Copies between any two memories, behind what the stream holds; by a copy engine if both are
  /// GPUs'.
  void move(void* to, const void* from, size_t bytes);
  /// Sets a word of a GPU, behind what the stream holds. Allocates nothing, because an allocation
  /// might wait for kernels that wait for this word.
  void set(uint64_t* word, uint64_t value);
  /// Sets whole words of 4 bytes to zero.
  void clear(void* onDevice, size_t bytes);
  /// Waits until all that the stream holds has ended.
  void synchronize();
  /// Turns what `enqueue` puts on the stream into a graph, which each call of the result launches.
  std::function<void()> capture(const std::function<void()>& enqueue);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

/// Tells which GPU an address belongs to.
struct GpuAllocation {
  int device = -1;  ///< -1: the memory is no GPU's
  uint64_t id = 0;  ///< unique for each allocation of this process; 0: not known
};
/// Looks up the allocation of an address. Does not load a driver: without one in this process all
/// memory is the host's.
CTRAN_API GpuAllocation gpuAllocationOf(const void* address);

/// Allocates memory of a device that other processes can map, filled with zeros. When the last
/// owner lets go of it, it is freed after all that runs on the device has ended.
CTRAN_API std::shared_ptr<void> allocateOnGpu(int device, size_t bytes);

/// Allocates page-locked memory of the host, which every GPU reads and writes at the same address;
/// filled with zeros.
CTRAN_API std::shared_ptr<void> allocateForGpus(size_t bytes);

/// Names memory of a GPU for other processes of this host. It is plain data that may be sent.
using GpuMemoryName = std::array<std::byte, 192>;
struct SharedGpuMemory {
  GpuMemoryName name{};
  std::shared_ptr<void> held;  ///< has to be held as long as others are to open the name
};
/// Shares memory of allocateOnGpu, of torch, or of cudaMalloc. Throws Error(Unsupported) for memory
/// that cannot be shared.
CTRAN_API SharedGpuMemory shareGpuMemory(const void* address, size_t bytes);
/// Opens shared memory so that `device` can read and write it, at least as long as the result is
/// held. Throws Error if the memory is gone, has fewer bytes, or cannot be reached.
CTRAN_API std::shared_ptr<void> openGpuMemory(const GpuMemoryName& name, size_t bytes, int device);

}  // namespace api
}  // namespace ctran
