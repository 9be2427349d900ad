#pragma once

#include <comms/torchcomms/TorchCommWindow.hpp>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "ctran/collective/gpu/kernels.h"
#include "ctran/gpu/memory.h"
#include "ctran/gpu/runtime.h"
#include "torchcomms/csrc/backends/gpu/peer_memory.hpp"

namespace torch::comms::gpu {

/// What a window asks of the communicator it belongs to, which outlives it.
class WindowHost {
 public:
  virtual ~WindowHost() = default;
  /// `issue(stream)` puts work on a stream: the current one, or with `async_op` the communicator's
  /// own behind it. `hold` is kept until it has ended, `awaited` are ranks without which it does
  /// not.
  virtual c10::intrusive_ptr<TorchWork> enqueue(
      OpName op, bool async_op, const OpOptions& options,
      const std::function<void(ctran::gpu::Stream)>& issue, std::shared_ptr<void> hold,
      std::vector<int> awaited) = 0;
  /// Every rank's text, in their order. Collective; throws ctran::Error by the timeout.
  virtual std::vector<std::string> exchange(const std::string& own) = 0;
  virtual const std::shared_ptr<ctran::gpu::EventPool>& events() const = 0;
  /// `release` ends what waits on streams; called on any thread when the communicator breaks, as
  /// long as somebody holds it.
  virtual void atEnd(std::weak_ptr<std::function<void()>> release) = 0;
};

/// A window of GPUs of one host that map each other's memory: a put is a copy by the device, a
/// signal a kernel of one thread that writes a word, and a wait one that waits for it. The host
/// never waits, and counts nothing. Operations of a window are ordered, whatever their streams, but
/// for those in graphs.
class GpuWindow final : public TorchCommWindow {
 public:
  GpuWindow(int rank, int size, at::Device device, std::unique_ptr<WindowHost> host);
  ~GpuWindow() override;

 protected:
  void open(const at::Tensor& memory, int64_t signals) override;
  void close() override;
  at::Tensor newMemory(int64_t bytes) override;
  int64_t bytesOf(int rank) const override;
  int64_t signalsOf(int rank) const override;
  TorchCommWinAccessType accessOf(int rank) const override;
  std::shared_ptr<void> mapped(int rank) const override;
  WorkPtr putBytes(const at::Tensor& source, int dst, int64_t offset, bool async_op,
                   const OpOptions& options) override;
  WorkPtr getBytes(at::Tensor& destination, int src, int64_t offset, bool async_op,
                   const OpOptions& options) override;
  WorkPtr flushPuts(int dst, bool async_op, const OpOptions& options) override;
  WorkPtr addSignal(int dst, bool async_op, const OpOptions& options) override;
  WorkPtr awaitSignal(int src, bool async_op, const OpOptions& options) override;
  WorkPtr setSignal(int64_t index, uint64_t value, int dst, bool async_op,
                    const OpOptions& options) override;
  WorkPtr compareSignal(int64_t index, uint64_t value, SignalCmpOp op, bool async_op,
                        const OpOptions& options) override;

 private:
  struct Peer {
    int64_t bytes = 0;
    int64_t signals = 0;
    std::shared_ptr<void> memory;
    std::shared_ptr<void> words;  ///< one for each rank that counts signals, then the numbered ones
  };
  /// In device memory, so that replays count: per rank, the signals sent to it, and those of it
  /// that have been waited for.
  enum Count { Sent, Awaited };

  /// What the operations in graphs use, for as long as the window is open.
  using Kept = std::tuple<std::vector<Peer>, std::shared_ptr<void>,
                          std::shared_ptr<ctran::gpu::MappedHostMemory>, std::shared_ptr<void>,
                          std::shared_ptr<std::function<void()>>>;
  using Issue = std::function<void(ctran::gpu::Stream)>;
  /// As an operation behind the window's last one.
  WorkPtr enqueue(OpName op, bool async_op, const OpOptions& options, const Issue& issue,
                  std::shared_ptr<void> hold = nullptr, std::vector<int> awaited = {});
  WorkPtr copy(OpName op, const void* to, const void* from, const at::Tensor& tensor, bool async_op,
               const OpOptions& options);
  ctran::gpu::DevicePtr wordOf(int rank, int64_t number) const;
  ctran::gpu::DevicePtr countOf(Count count, int rank) const;
  /// With a `count` a signal is the next of those; without, it has the value.
  WorkPtr send(int rank, int64_t number, ctran::gpu::DevicePtr count, uint64_t value, bool async_op,
               const OpOptions& options);
  WorkPtr await(int64_t number, ctran::gpu::DevicePtr count, uint64_t value, SignalCmpOp op,
                std::vector<int> senders, bool async_op, const OpOptions& options);
  std::vector<int> others() const;
  void awaitOwn();
  /// As awaitOwn, of what may wait in vain, and that nobody else ends.
  void endOwn() noexcept;
  int deviceIndex() const { return get_device().has_index() ? get_device().index() : 0; }

  const int rank_;
  const int size_;
  const std::unique_ptr<WindowHost> host_;
  const ctran::SignalKernels* kernels_ = nullptr;
  std::shared_ptr<void> adopted_;  ///< our memory, if it is of somebody else's allocator
  std::vector<Peer> peers_;
  std::shared_ptr<void> counts_;
  std::shared_ptr<ctran::gpu::MappedHostMemory> abort_;
  std::shared_ptr<std::function<void()>> release_;
  ctran::gpu::PooledEvent last_;
  ctran::gpu::Stream lastStream_ = nullptr;
  bool used_ = false;
  bool captured_ = false;
  std::shared_ptr<Kept> kept_;
};

}  // namespace torch::comms::gpu
