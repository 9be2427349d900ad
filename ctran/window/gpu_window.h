#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "ctran/engine/gpu_queue.h"
#include "ctran/gpu/memory.h"
#include "ctran/gpu/runtime.h"
#include "ctran/window/window.h"

namespace ctran {

struct SignalKernels;

/// What a window of GPUs needs from the communicator it belongs to, which outlives the window.
class GpuWindowHost {
 public:
  virtual ~GpuWindowHost() = default;
  /// Puts work on a stream, behind what `stream` holds, as GpuQueue::enqueueWork does;
  /// `issue` is given that stream.
  virtual std::shared_ptr<StreamOperation> enqueue(const std::function<void(gpu::Stream)>& issue,
                                                   std::vector<int> awaited, gpu::Stream stream,
                                                   const EnqueueOptions& options) = 0;
  /// Returns the text of every rank, by rank. Collective; throws Error at the timeout.
  virtual std::vector<std::string> exchange(const std::string& own) = 0;
  virtual StreamQueue& queue() = 0;
  /// The timeout of the communicator.
  virtual std::chrono::milliseconds timeout() const = 0;
};

/// A window of GPUs of one host that map each other's memory. A put is a copy by the device, a
/// signal is a kernel of one thread that writes a word, and a wait is a kernel that waits for the
/// word. The host never waits, and counts nothing. Operations of a window are ordered, whatever
/// their streams, except for those in graphs. They are put behind what `stream` holds; they return
/// null while it captures.
///
/// One thread at a time uses a window.
class GpuWindow {
 public:
  using Operation = std::shared_ptr<StreamOperation>;

  GpuWindow(int rank, int size, int device, std::unique_ptr<GpuWindowHost> host);
  /// Does what `settle` does.
  ~GpuWindow();
  GpuWindow(const GpuWindow&) = delete;
  GpuWindow& operator=(const GpuWindow&) = delete;

  /// Exposes memory of the device, and numbered words. Collective; if it fails on one rank, it
  /// throws on all.
  void open(void* data, size_t bytes, size_t signalWords, WaitHooks* hooks = nullptr);
  /// Closes the window. Collective: when it returns, no rank touches this rank's memory any more.
  void close(WaitHooks* hooks = nullptr);
  /// Waits until the operations of an open window have ended, and ends those that wait in vain. The
  /// window can be destroyed afterwards.
  void settle(WaitHooks* hooks = nullptr) noexcept;

  size_t bytes(int rank) const { return peers_.at(static_cast<size_t>(rank)).bytes; }
  size_t signalWords(int rank) const { return peers_.at(static_cast<size_t>(rank)).signalWords; }
  /// Returns the memory of a rank, mapped on this device. A caller that uses it longer than the
  /// window is open has to hold it.
  const std::shared_ptr<void>& mapped(int rank) const {
    return peers_.at(static_cast<size_t>(rank)).memory;
  }

  GpuWindowHost& host() const { return *host_; }
  /// Kernels of the program use the window from now on: `close` waits for all that the device runs.
  void useFromKernels() { isUntracked_ = true; }

  // The operations are those of Window. What `options` keep alive is held until the operation has
  // ended.

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

  /// Allocates memory of a device for windows, filled with zeros.
  static std::shared_ptr<void> allocate(size_t bytes, int device);

 private:
  struct Peer {
    size_t bytes = 0;
    size_t signalWords = 0;
    std::shared_ptr<void> memory;
    /// First a word for each rank that counts its signals, then the numbered words.
    std::shared_ptr<void> words;
  };
  /// Counts in device memory, so that replays count: per rank, the signals sent to it, and those of
  /// it that have been waited for.
  enum Count { Sent, Awaited };
  /// What the operations in graphs use, kept as long as the window is open.
  using Kept =
      std::tuple<std::vector<Peer>, std::shared_ptr<void>, std::shared_ptr<gpu::MappedHostMemory>,
                 std::shared_ptr<void>, std::shared_ptr<std::function<void()>>>;
  using Issue = std::function<void(gpu::Stream)>;

  /// Enqueues an operation behind the window's last one.
  Operation enqueue(const Issue& issue, gpu::Stream stream, const EnqueueOptions& options,
                    std::vector<int> awaited = {});
  Operation copy(const void* to, const void* from, size_t bytes, gpu::Stream stream,
                 const EnqueueOptions& options);
  /// With a `count`, a signal has the next value of that count; without, it has `value`.
  Operation send(int target, size_t word, gpu::DevicePtr count, uint64_t value, gpu::Stream stream,
                 const EnqueueOptions& options);
  Operation await(size_t word, gpu::DevicePtr count, uint64_t value, Comparison comparison,
                  std::vector<int> senders, gpu::Stream stream, const EnqueueOptions& options);
  gpu::DevicePtr wordOf(int rank, size_t word) const;
  gpu::DevicePtr countOf(Count count, int rank) const;
  std::vector<int> others() const;
  const gpu::Runtime& runtime() const { return host_->queue().runtime(); }
  void awaitOwn(WaitHooks* hooks);
  /// Does what `awaitOwn` does for operations that may wait in vain, and that nobody else ends.
  void endOwn(WaitHooks* hooks) noexcept;

  const int rank_;
  const int size_;
  const int device_;
  const std::unique_ptr<GpuWindowHost> host_;
  const SignalKernels* kernels_ = nullptr;
  std::shared_ptr<void> adopted_;  ///< our memory, if it comes from somebody else's allocator
  std::vector<Peer> peers_;
  std::shared_ptr<void> counts_;
  std::shared_ptr<gpu::MappedHostMemory> abort_;
  std::shared_ptr<std::function<void()>> release_;
  gpu::PooledEvent last_;
  gpu::Stream lastStream_ = nullptr;
  bool used_ = false;
  bool isUntracked_ = false;  ///< graphs, or kernels of the program, use the window
  std::shared_ptr<Kept> kept_;
};

}  // namespace ctran
