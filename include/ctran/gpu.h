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

class GpuCommunicator;  // of the engine
class StreamOperation;

/// Programs that use CUDA pass its streams and pointers. Those that do not find here what a program
/// needs to try the engine on a GPU: neither CUDA's headers nor its libraries are needed to build.
namespace api {

/// A CUstream or cudaStream_t.
using GpuStream = void*;

/// How many GPUs the driver shows to this process. Throws Error(Unsupported) without a driver.
CTRAN_API int gpuCount();
/// "NVIDIA H200".
CTRAN_API std::string gpuName(int device);
/// The GPU that is current on this thread; none if the thread has used none yet.
CTRAN_API std::optional<int> currentGpu();
/// The GPU that has the memory at an address; none for the host's memory, which all memory is while
/// the process does not use CUDA. Some hundred nanoseconds.
CTRAN_API std::optional<int> gpuOf(const void* memory);
/// Whether what is enqueued on the stream becomes part of a graph.
CTRAN_API bool isCapturing(GpuStream stream);
/// Puts a copy on a stream of the GPU, from any memory to any; it becomes part of what is captured
/// there.
CTRAN_API void copyOn(GpuStream stream, int device, void* to, const void* from, size_t bytes);

struct GpuOptions {
  int device = 0;  ///< of this rank, as the driver numbers them
  bool highPriority = false;
};

struct EnqueueOptions {
  std::chrono::milliseconds timeout{0};  ///< 0: the communicator's
  /// Whether the operation goes on the communicator's own stream, behind what the caller's stream
  /// holds, and leaves room on the GPU for other kernels.
  bool aside = false;
  /// How many blocks its kernel takes at most, and how many threads each has, up to 512 in whole
  /// warps; 0: as the algorithm likes. The same on all ranks.
  uint32_t blocks = 0, threads = 0;
  /// The buffers are memory that all ranks can map: the first call with one waits some seconds, at
  /// most, until they have, so that data goes straight from it and to it at once.
  bool symmetric = false;
  /// What owns the buffers: held until the operation has ended; in a capture, as long as the graph.
  std::shared_ptr<void> keepAlive = nullptr;
};

/// One operation on a stream. As a Work, `wait` blocks the thread.
class CTRAN_API StreamWork final {
 public:
  explicit StreamWork(std::shared_ptr<StreamOperation> engine);
  WorkState state() const;
  /// Blocks the thread until the operation has ended; throws its error.
  void wait(WaitHooks* hooks = nullptr);
  /// Makes `stream` wait for the operation; the thread goes on at once.
  void makeWait(GpuStream stream);

 private:
  std::shared_ptr<StreamOperation> engine_;
};

/// The communicator of ranks that each have a GPU. Its operations are work on streams: a call
/// returns at once, and runs behind what the stream holds. While a stream captures, what is
/// enqueued on it becomes part of the graph; all ranks replay the same graphs in the same order.
class CTRAN_API GpuCommunicator final {
 public:
  /// Collective over the ranks of `host`, which this uses alone from then on.
  static std::shared_ptr<GpuCommunicator> create(const std::shared_ptr<Communicator>& host,
                                                 const GpuOptions& options = {},
                                                 WaitHooks* hooks = nullptr);
  /// The same, of that name, beside `host`, which stays in use for memory of the CPU. Whatever
  /// breaks `host` breaks this, too. Not in a capture: the stream's errors would be another's.
  static std::shared_ptr<GpuCommunicator> beside(const std::shared_ptr<Communicator>& host,
                                                 const std::string& name,
                                                 const GpuOptions& options = {},
                                                 WaitHooks* hooks = nullptr);
  explicit GpuCommunicator(std::shared_ptr<ctran::GpuCommunicator> engine);
  ~GpuCommunicator();
  GpuCommunicator(const GpuCommunicator&) = delete;
  GpuCommunicator& operator=(const GpuCommunicator&) = delete;

  /// Enqueues a collective behind what `stream` holds. Null while the stream captures.
  std::shared_ptr<StreamWork> enqueue(const Call& call, GpuStream stream,
                                      const EnqueueOptions& options = {},
                                      WaitHooks* hooks = nullptr);
  /// The same of sends and receives, which run at the same time.
  std::shared_ptr<StreamWork> enqueueMessages(std::span<const Call> messages, GpuStream stream,
                                              const EnqueueOptions& options = {});

  const std::string& name() const;
  int device() const;
  /// As Communicator::prepare. Algorithms are those of GPUs.
  std::shared_ptr<const CallHints> prepare(const Hints& hints) const;
  /// What would serve a call in which every rank contributes that many bytes of that type.
  Explanation explain(CollectiveKind kind, size_t bytes, DataType type,
                      const std::shared_ptr<const CallHints>& hints = nullptr) const;

  void setTimeout(std::chrono::nanoseconds timeout);
  void abort(const std::string& reason);
  /// Throws the error that has broken the communicator, if one has.
  void throwIfBroken() const;
  /// Whether one has. Any thread.
  bool isAborted() const;
  /// Waits until all that was enqueued has ended, then leaves.
  void finalize(WaitHooks* hooks = nullptr);

 private:
  const std::shared_ptr<ctran::GpuCommunicator> engine_;
};

/// A stream that does not wait for the default stream. What follows may be called while the calling
/// thread captures, and is not captured, but for what `capture` says.
class CTRAN_API OwnGpuStream final {
 public:
  /// `words` are how many `set` takes before it has to wait for the first ones.
  explicit OwnGpuStream(int device, size_t words = 0);
  ~OwnGpuStream();
  OwnGpuStream(const OwnGpuStream&) = delete;
  OwnGpuStream& operator=(const OwnGpuStream&) = delete;

  GpuStream get() const;
  void copy(void* toDevice, const void* from, size_t bytes);
  /// Once all that the stream holds has ended.
  void read(void* to, const void* fromDevice, size_t bytes);
  /// From any memory to any, by a copy engine if both are GPUs', behind what the stream holds.
  void move(void* to, const void* from, size_t bytes);
  /// Sets a word of a GPU, behind what the stream holds. Allocates nothing, which might wait for
  /// kernels that wait for this.
  void set(uint64_t* word, uint64_t value);
  /// Makes zeros of whole words of 4 bytes.
  void clear(void* onDevice, size_t bytes);
  /// Waits until all that the stream holds has ended.
  void synchronize();
  /// What `enqueue` puts on the stream becomes a graph, which each call of the result launches.
  std::function<void()> capture(const std::function<void()>& enqueue);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

/// Whose memory an address is.
struct GpuAllocation {
  int device = -1;  ///< -1: no GPU's
  uint64_t id = 0;  ///< another one for each allocation of this process; 0: not known
};
/// Loads no driver: without one in this process memory is the host's.
CTRAN_API GpuAllocation gpuAllocationOf(const void* address);

/// Memory of a device that other processes can map; zeros at first. Its last owner lets go of it
/// when all that runs on the device has ended.
CTRAN_API std::shared_ptr<void> allocateOnGpu(int device, size_t bytes);

/// Page-locked memory of the host, which every GPU reads and writes at the same address; zeros.
CTRAN_API std::shared_ptr<void> allocateForGpus(size_t bytes);

/// Names memory of a GPU for other processes of this host: plain data, that may be sent.
using GpuMemoryName = std::array<std::byte, 192>;
struct SharedGpuMemory {
  GpuMemoryName name{};
  std::shared_ptr<void> held;  ///< as long as others are to open the name
};
/// Of allocateOnGpu, of torch, or of cudaMalloc. Throws Error(Unsupported) for what cannot be
/// shared.
CTRAN_API SharedGpuMemory shareGpuMemory(const void* address, size_t bytes);
/// That memory, as `device` reads and writes it, at least as long as it is held. Throws Error if it
/// is gone, has fewer bytes, or cannot be reached.
CTRAN_API std::shared_ptr<void> openGpuMemory(const GpuMemoryName& name, size_t bytes, int device);

}  // namespace api
}  // namespace ctran
