#pragma once

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "ctran/engine/gpu_communicator.h"
#include "ctran/gpu/memory.h"
#include "ctran/gpu/runtime.h"
#include "ctran/window/window.h"

namespace ctran {

struct SignalKernels;

/// What a window of GPUs asks of the communicator it belongs to, which outlives it.
class GpuWindowHost {
 public:
  virtual ~GpuWindowHost() = default;
  /// Puts work on the stream that `issue` is given, behind what `stream` holds, as
  /// GpuCommunicator::enqueueWork does.
  virtual std::shared_ptr<StreamOperation> enqueue(const std::function<void(gpu::Stream)>& issue,
                                                   std::vector<int> awaited, gpu::Stream stream,
                                                   const EnqueueOptions& options) = 0;
  /// Every rank's text, in their order. Collective; throws Error by the timeout.
  virtual std::vector<std::string> exchange(const std::string& own) = 0;
  virtual StreamQueue& queue() = 0;
};

/// A window of GPUs of one host that map each other's memory: a put is a copy by the device, a
/// signal a kernel of one thread that writes a word, and a wait one that waits for it. The host
/// never waits, and counts nothing. Operations of a window are ordered, whatever their streams, but
/// for those in graphs. They are put behind what `stream` holds, and null while it captures.
///
/// One thread at a time.
class GpuWindow {
 public:
  using Operation = std::shared_ptr<StreamOperation>;

  GpuWindow(int rank, int size, int device, std::unique_ptr<GpuWindowHost> host);
  /// As `settle`.
  ~GpuWindow();
  GpuWindow(const GpuWindow&) = delete;
  GpuWindow& operator=(const GpuWindow&) = delete;

  /// Exposes memory of the device, and numbered words. Collective; throws on all ranks if it has on
  /// one.
  void open(void* data, size_t bytes, size_t signalWords, WaitHooks* hooks = nullptr);
  /// Collective: when it returns nobody touches this rank's memory any more.
  void close(WaitHooks* hooks = nullptr);
  /// Waits until the operations of an open window have ended, and ends those that wait in vain, as
  /// before it is dropped.
  void settle(WaitHooks* hooks = nullptr) noexcept;

  size_t bytes(int rank) const { return peers_.at(static_cast<size_t>(rank)).bytes; }
  size_t signalWords(int rank) const { return peers_.at(static_cast<size_t>(rank)).signalWords; }
  /// That rank's memory, on this device. Whoever uses it longer than the window is open holds it.
  const std::shared_ptr<void>& mapped(int rank) const {
    return peers_.at(static_cast<size_t>(rank)).memory;
  }

  // As of Window. What `options` keep alive is held until the operation has ended.

  Operation put(int target, size_t offset, const void* source, size_t bytes, gpu::Stream stream,
                const EnqueueOptions& options);
  Operation get(int target, size_t offset, void* destination, size_t bytes, gpu::Stream stream,
                const EnqueueOptions& options);
  Operation flush(gpu::Stream stream, const EnqueueOptions& options);
  Operation signal(int target, gpu::Stream stream, const EnqueueOptions& options);
  Operation setWord(int target, size_t word, uint64_t value, gpu::Stream stream,
                    const EnqueueOptions& options);
  Operation waitSignal(int origin, gpu::Stream stream, const EnqueueOptions& options);
  Operation waitWord(size_t word, Comparison comparison, uint64_t value, gpu::Stream stream,
                     const EnqueueOptions& options);

  /// Memory of a device for windows, zeros.
  static std::shared_ptr<void> allocate(size_t bytes, int device);

 private:
  struct Peer {
    size_t bytes = 0;
    size_t signalWords = 0;
    std::shared_ptr<void> memory;
    std::shared_ptr<void> words;  ///< one for each rank that counts signals, then the numbered ones
  };
  /// In device memory, so that replays count: per rank, the signals sent to it, and those of it
  /// that have been waited for.
  enum Count { Sent, Awaited };
  /// What the operations in graphs use, for as long as the window is open.
  using Kept =
      std::tuple<std::vector<Peer>, std::shared_ptr<void>, std::shared_ptr<gpu::MappedHostMemory>,
                 std::shared_ptr<void>, std::shared_ptr<std::function<void()>>>;
  using Issue = std::function<void(gpu::Stream)>;

  /// As an operation behind the window's last one.
  Operation enqueue(const Issue& issue, gpu::Stream stream, const EnqueueOptions& options,
                    std::vector<int> awaited = {});
  Operation copy(const void* to, const void* from, size_t bytes, gpu::Stream stream,
                 const EnqueueOptions& options);
  /// With a `count` a signal is the next of those; without, it has the value.
  Operation send(int target, size_t word, gpu::DevicePtr count, uint64_t value, gpu::Stream stream,
                 const EnqueueOptions& options);
  Operation await(size_t word, gpu::DevicePtr count, uint64_t value, Comparison comparison,
                  std::vector<int> senders, gpu::Stream stream, const EnqueueOptions& options);
  gpu::DevicePtr wordOf(int rank, size_t word) const;
  gpu::DevicePtr countOf(Count count, int rank) const;
  std::vector<int> others() const;
  const gpu::Runtime& runtime() const { return host_->queue().runtime(); }
  void awaitOwn(WaitHooks* hooks);
  /// As awaitOwn, of what may wait in vain, and that nobody else ends.
  void endOwn(WaitHooks* hooks) noexcept;

  const int rank_;
  const int size_;
  const int device_;
  const std::unique_ptr<GpuWindowHost> host_;
  const SignalKernels* kernels_ = nullptr;
  std::shared_ptr<void> adopted_;  ///< our memory, if it is of somebody else's allocator
  std::vector<Peer> peers_;
  std::shared_ptr<void> counts_;
  std::shared_ptr<gpu::MappedHostMemory> abort_;
  std::shared_ptr<std::function<void()>> release_;
  gpu::PooledEvent last_;
  gpu::Stream lastStream_ = nullptr;
  bool used_ = false;
  bool captured_ = false;
  std::shared_ptr<Kept> kept_;
};

}  // namespace ctran
