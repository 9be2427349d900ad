#include "torchcomms/csrc/backends/gpu/window.hpp"

#include <ATen/ATen.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "ctran/base/error.h"
#include "ctran/stream/watchdog.h"
#include "ctran/window/signals.cuh"

namespace torch::comms::gpu {

namespace {

using ctran::ErrorKind;
using ctran::gpu::DevicePtr;
using ctran::gpu::Driver;
using ctran::gpu::Runtime;
using ctran::gpu::Stream;

constexpr size_t kWord = sizeof(uint64_t);
/// How long a window that goes waits for kernels that have been told to end.
constexpr std::chrono::seconds kEndPatience{5};

const Runtime& cuda() { return Runtime::of(ctran::gpu::Platform::Cuda); }

/// What ranks tell each other when a window opens, and of how far they have come.
struct Introduction {
  ctran::SharedRange memory;
  ctran::SharedRange words;
  int64_t signals;
  bool failed;
  ErrorKind kind;
  char why[400];
};

/// `step(own)` on every rank; what they say of themselves. Throws on all ranks if it has on one.
template <class Step>
std::vector<Introduction> agree(WindowHost& host, int rank, const Step& step) {
  Introduction own{};
  try {
    step(own);
  } catch (const ctran::Error& error) {
    own.failed = true;
    own.kind = error.kind();
    std::strncpy(own.why, error.what(), sizeof own.why - 1);
  }
  const auto texts = host.exchange(std::string(reinterpret_cast<const char*>(&own), sizeof own));
  std::vector<Introduction> all(texts.size());
  for (size_t r = 0; r < texts.size(); ++r) {
    const int number = static_cast<int>(r);
    if (texts[r].size() != sizeof own) {
      throw ctran::Error(ErrorKind::System, "Rank " + std::to_string(r) + "'s memory is unreadable",
                         {number});
    }
    std::memcpy(&all[r], texts[r].data(), sizeof own);
    if (!all[r].failed) continue;
    const std::string whose = number == rank ? "" : "Rank " + std::to_string(r) + ": ";
    throw ctran::Error(all[r].kind, whose + all[r].why, {number}, "window");
  }
  return all;
}

/// The number of a comparison in device code.
uint32_t deviceComparison(SignalCmpOp op) {
  switch (op) {
    case SignalCmpOp::EQ:
      return ctran::device::kEqual;
    case SignalCmpOp::NE:
      return ctran::device::kNotEqual;
    case SignalCmpOp::LT:
      return ctran::device::kLess;
    case SignalCmpOp::LE:
      return ctran::device::kLessOrEqual;
    case SignalCmpOp::GT:
      return ctran::device::kGreater;
    case SignalCmpOp::GE:
      break;
  }
  return ctran::device::kGreaterOrEqual;
}

ctran::device::u64* wordAt(DevicePtr address) {
  return reinterpret_cast<ctran::device::u64*>(address);
}

template <class Arguments>
void launch(ctran::gpu::Function kernel, Arguments arguments, Stream stream) {
  void* parameters[] = {&arguments};
  ctran::gpu::check(
      Driver::get().launchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr),
      "launching a kernel");
}

}  // namespace

GpuWindow::GpuWindow(int rank, int size, at::Device device, std::unique_ptr<WindowHost> host)
    : TorchCommWindow(rank, size, device), rank_(rank), size_(size), host_(std::move(host)) {}

GpuWindow::~GpuWindow() {
  try {
    if (ctran::Watchdog::isStopped()) endOwn();
    awaitOwn();
  } catch (const ctran::Error&) {  // the device is lost, and the memory with it
  } catch (...) {                  // Ctrl-C
    endOwn();
  }
}

void GpuWindow::open(const at::Tensor& memory, int64_t signals) {
  const HostWait wait;
  void* data = memory.numel() == 0 ? nullptr : memory.mutable_data_ptr();
  const size_t count = static_cast<size_t>(size_) + static_cast<size_t>(signals);
  std::shared_ptr<void> adopted, words;
  const auto all = agree(*host_, rank_, [&](Introduction& own) {
    const ctran::gpu::DeviceGuard active(deviceIndex());
    kernels_ = &ctran::SignalKernels::of(deviceIndex());
    counts_ = allocateWords(2 * static_cast<size_t>(size_), deviceIndex());
    abort_ = std::make_shared<ctran::gpu::MappedHostMemory>(sizeof(uint32_t));
    adopted = ctran::DeviceSegment::adopt(deviceIndex(), data, memory.nbytes());
    words = allocateWords(count, deviceIndex());
    own.memory = ctran::shareDeviceMemory(addressOf(data), memory.nbytes());
    own.words = ctran::shareDeviceMemory(addressOf(words.get()), count * kWord);
    own.signals = signals;
  });
  std::vector<Peer> peers(static_cast<size_t>(size_));
  agree(*host_, rank_, [&](Introduction&) {
    for (int r = 0; r < size_; ++r) {
      const Introduction& other = all.at(static_cast<size_t>(r));
      Peer& peer = peers[static_cast<size_t>(r)];
      peer.bytes = static_cast<int64_t>(other.memory.bytes);
      peer.signals = other.signals;
      if (r == rank_) {
        peer.memory = std::shared_ptr<void>(std::shared_ptr<void>(), data);
        peer.words = words;
      } else {
        peer.memory = ctran::mapDeviceMemory(other.memory, deviceIndex());
        peer.words = ctran::mapDeviceMemory(other.words, deviceIndex());
      }
    }
  });
  peers_ = std::move(peers);
  adopted_ = std::move(adopted);
  release_ = std::make_shared<std::function<void()>>([abort = abort_] {
    std::atomic_ref(*static_cast<uint32_t*>(abort->host())).store(1, std::memory_order_relaxed);
  });
  host_->atEnd(release_);
  kept_ = std::make_shared<Kept>(peers_, counts_, abort_, adopted_, release_);
}

void GpuWindow::close() {
  const HostWait wait;
  awaitOwn();
  if (captured_) {  // of replays there are no events
    const ctran::gpu::DeviceGuard active(deviceIndex());
    ctran::gpu::check(Driver::get().ctxSynchronize(), "cuCtxSynchronize");
  }
  host_->exchange({});  // nobody writes here any more
  release_.reset();
  const int rank = rank_;
  for (int r = 0; r < size_; ++r) {
    if (r != rank) peers_[static_cast<size_t>(r)] = {};
  }
  host_->exchange({});  // nobody has our memory mapped any more, but for views
  peers_.clear();
  if (kept_) *kept_ = {};
  adopted_.reset();
}

void GpuWindow::endOwn() noexcept {
  if (!used_) return;
  const HostWait wait;
  if (release_) (*release_)();
  try {
    const ctran::gpu::DeviceGuard active(deviceIndex());
    const auto until = std::chrono::steady_clock::now() + kEndPatience;
    while (!cuda().isReached(last_.get()) && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  } catch (const ctran::Error&) {  // the device is lost
  }
  used_ = false;
}

void GpuWindow::awaitOwn() {
  if (!used_) return;
  const HostWait wait;
  const ctran::gpu::DeviceGuard active(deviceIndex());
  while (!cuda().isReached(last_.get())) {
    HostWait::checkInterrupts();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  used_ = false;
}

at::Tensor GpuWindow::newMemory(int64_t bytes) {
  const std::shared_ptr<void> memory = gpu::allocate(static_cast<size_t>(bytes), deviceIndex());
  return at::for_blob(memory.get(), {bytes})
      .deleter([memory](void*) {})
      .options(at::TensorOptions(get_device()).dtype(at::kByte))
      .target_device(get_device())
      .make_tensor();
}

int64_t GpuWindow::bytesOf(int rank) const { return peers_.at(static_cast<size_t>(rank)).bytes; }

int64_t GpuWindow::signalsOf(int rank) const {
  return peers_.at(static_cast<size_t>(rank)).signals;
}

TorchCommWinAccessType GpuWindow::accessOf(int) const {
  return TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED;
}

std::shared_ptr<void> GpuWindow::mapped(int rank) const {
  return peers_.at(static_cast<size_t>(rank)).memory;
}

DevicePtr GpuWindow::wordOf(int rank, int64_t number) const {
  return addressOf(peers_[static_cast<size_t>(rank)].words.get()) +
         static_cast<size_t>(number) * kWord;
}

TorchCommWindow::WorkPtr GpuWindow::enqueue(OpName op, bool async_op, const OpOptions& options,
                                            const Issue& issue, std::shared_ptr<void> hold,
                                            std::vector<int> awaited) {
  const auto held = std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(
      nullptr, std::move(hold));
  return host_->enqueue(
      op, async_op, options,
      [&](Stream stream) {
        const Runtime& runtime = cuda();
        const bool capturing = runtime.isCapturing(stream);
        if (used_ && !capturing && stream != lastStream_) {
          runtime.check(runtime.streamWaitEvent(stream, last_.get(), 0), "making a stream wait");
        }
        issue(stream);
        if (capturing) {
          captured_ = true;
          held->first = kept_;
          return;
        }
        ctran::gpu::PooledEvent end(host_->events());
        runtime.check(runtime.eventRecord(end.get(), stream), "recording an event");
        last_ = std::move(end);
        lastStream_ = stream;
        used_ = true;
      },
      held, std::move(awaited));
}

TorchCommWindow::WorkPtr GpuWindow::copy(OpName op, const void* to, const void* from,
                                         const at::Tensor& tensor, bool async_op,
                                         const OpOptions& options) {
  const size_t bytes = tensor.nbytes();
  return enqueue(
      op, async_op, options,
      [&](Stream stream) {
        if (bytes == 0) return;
        cuda().check(cuda().memcpyAsync(addressOf(to), addressOf(from), bytes, stream),
                     "copying between devices");
      },
      std::make_shared<at::Tensor>(tensor));
}

TorchCommWindow::WorkPtr GpuWindow::putBytes(const at::Tensor& source, int dst, int64_t offset,
                                             bool async_op, const OpOptions& options) {
  const auto* to = static_cast<std::byte*>(mapped(dst).get()) + offset;
  return copy(OpName::put, to, source.const_data_ptr(), source, async_op, options);
}

TorchCommWindow::WorkPtr GpuWindow::getBytes(at::Tensor& destination, int src, int64_t offset,
                                             bool async_op, const OpOptions& options) {
  const auto* from = static_cast<std::byte*>(mapped(src).get()) + offset;
  return copy(OpName::get, destination.mutable_data_ptr(), from, destination, async_op, options);
}

TorchCommWindow::WorkPtr GpuWindow::flushPuts(int, bool async_op, const OpOptions& options) {
  return enqueue(OpName::flush, async_op, options, [](Stream) {});
}

DevicePtr GpuWindow::countOf(Count count, int rank) const {
  return addressOf(counts_.get()) + static_cast<size_t>(count * size_ + rank) * kWord;
}

TorchCommWindow::WorkPtr GpuWindow::send(int rank, int64_t number, DevicePtr count, uint64_t value,
                                         bool async_op, const OpOptions& options) {
  return enqueue(OpName::signal, async_op, options, [&](Stream stream) {
    launch(kernels_->send,
           ctran::device::SignalArguments{wordAt(wordOf(rank, number)), wordAt(count), value},
           stream);
  });
}

TorchCommWindow::WorkPtr GpuWindow::await(int64_t number, DevicePtr count, uint64_t value,
                                          SignalCmpOp op, std::vector<int> senders, bool async_op,
                                          const OpOptions& options) {
  return enqueue(
      OpName::wait_signal, async_op, options,
      [&](Stream stream) {
        launch(kernels_->await,
               ctran::device::AwaitSignalArguments{
                   wordAt(wordOf(rank_, number)), wordAt(count), value, deviceComparison(op),
                   reinterpret_cast<const uint32_t*>(abort_->device())},
               stream);
      },
      nullptr, std::move(senders));
}

/// Any of whom may set a numbered signal.
std::vector<int> GpuWindow::others() const {
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) ranks.push_back(r);
  }
  return ranks;
}

TorchCommWindow::WorkPtr GpuWindow::addSignal(int dst, bool async_op, const OpOptions& options) {
  return send(dst, rank_, countOf(Sent, dst), 0, async_op, options);
}

TorchCommWindow::WorkPtr GpuWindow::awaitSignal(int src, bool async_op, const OpOptions& options) {
  return await(src, countOf(Awaited, src), 0, SignalCmpOp::GE, {src}, async_op, options);
}

TorchCommWindow::WorkPtr GpuWindow::setSignal(int64_t index, uint64_t value, int dst, bool async_op,
                                              const OpOptions& options) {
  return send(dst, size_ + index, 0, value, async_op, options);
}

TorchCommWindow::WorkPtr GpuWindow::compareSignal(int64_t index, uint64_t value, SignalCmpOp op,
                                                  bool async_op, const OpOptions& options) {
  return await(size_ + index, 0, value, op, others(), async_op, options);
}

}  // namespace torch::comms::gpu
