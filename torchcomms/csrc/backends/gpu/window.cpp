#include "torchcomms/csrc/backends/gpu/window.hpp"

#include <ATen/ATen.h>

#include <cstring>
#include <deque>
#include <thread>

#include "ctran/base/error.h"

namespace torch::comms::gpu {

namespace {

using ctran::ErrorKind;
using ctran::gpu::DevicePtr;
using ctran::gpu::Driver;
using ctran::gpu::Runtime;
using ctran::gpu::Stream;

constexpr unsigned kGreaterEqual = 0;  // as a difference of 64 bits, so that counters may wrap
constexpr unsigned kEqual = 1;
constexpr size_t kWord = sizeof(uint64_t);

const Runtime& cuda() { return Runtime::of(ctran::gpu::Platform::Cuda); }

/// What ranks tell each other when a window opens.
struct Introduction {
  SharedRange memory;
  SharedRange words;
  int64_t signals;
};

}  // namespace

/// Ends what waits on streams for signals that will not come, by writing what is waited for.
class GpuWindow::Waits {
 public:
  Waits(std::shared_ptr<void> words, size_t counted, int device)
      : words_(std::move(words)), counted_(counted), device_(device) {}

  void add(int64_t number, uint64_t value) {
    const std::lock_guard lock(mutex_);
    values_.push_back({number, value});
    if (values_.size() > kMostRemembered) values_.pop_front();
  }

  void release() {
    std::deque<Wait> values;
    {
      const std::lock_guard lock(mutex_);
      values = values_;
    }
    // Of high priority, and by copies: streams that wait may share a queue of the device with
    // others of their kind.
    const ctran::gpu::DeviceGuard active(device_);
    const ctran::gpu::RelaxedCapture relaxed(cuda());
    const ctran::gpu::OwnStream stream(cuda(), device_, /*highPriority=*/true);
    for (size_t number = 0; number < counted_; ++number) write(number, kFarAhead, stream.get());
    // Several may wait for several values of one word, which they see in turn.
    for (const Wait& wait : values) {
      if (wait.number < static_cast<int64_t>(counted_)) continue;
      write(static_cast<size_t>(wait.number), wait.value, stream.get());
      std::this_thread::sleep_for(kTurn);
    }
  }

 private:
  struct Wait {
    int64_t number;
    uint64_t value;
  };
  static constexpr size_t kMostRemembered = 100;
  static constexpr std::chrono::milliseconds kTurn{2};
  static constexpr uint64_t kFarAhead = uint64_t{1} << 62;

  void write(size_t number, uint64_t value, Stream stream) {
    const Driver& driver = Driver::get();
    driver.memcpyHtoDAsync(addressOf(words_.get()) + number * kWord, &value, kWord, stream);
    driver.streamSynchronize(stream);
  }

  const std::shared_ptr<void> words_;
  const size_t counted_;
  const int device_;
  std::mutex mutex_;
  std::deque<Wait> values_;
};

GpuWindow::GpuWindow(int rank, int size, at::Device device, std::unique_ptr<WindowHost> host)
    : TorchCommWindow(rank, size, device), rank_(rank), size_(size), host_(std::move(host)) {
  const Driver& driver = Driver::get();
  if (!driver.streamWriteValue64 || !driver.streamWaitValue64) {
    throw ctran::Error(ErrorKind::Unsupported, "This driver's streams cannot wait for memory", {},
                       "new_window", "install a driver for CUDA 12 or later");
  }
}

GpuWindow::~GpuWindow() {
  try {
    awaitOwn();
  } catch (const ctran::Error&) {  // the device is lost, and the memory with it
  }
}

void GpuWindow::open(const at::Tensor& memory, int64_t signals) {
  const HostWait wait;
  void* data = memory.numel() == 0 ? nullptr : memory.mutable_data_ptr();
  Introduction own{share(addressOf(data), memory.nbytes()), {}, signals};
  const size_t count = static_cast<size_t>(size_) + static_cast<size_t>(signals);
  const std::shared_ptr<void> words = allocateWords(count, deviceIndex());
  own.words = share(addressOf(words.get()), count * kWord);

  const auto texts = host_->exchange(std::string(reinterpret_cast<const char*>(&own), sizeof(own)));
  std::vector<Peer> peers(static_cast<size_t>(size_));
  for (int r = 0; r < size_; ++r) {
    const std::string& text = texts.at(static_cast<size_t>(r));
    Introduction other{};
    if (text.size() != sizeof(other)) {
      throw ctran::Error(ErrorKind::System, "Rank " + std::to_string(r) + "'s memory is unreadable",
                         {r});
    }
    std::memcpy(&other, text.data(), sizeof(other));
    Peer& peer = peers[static_cast<size_t>(r)];
    peer.bytes = static_cast<int64_t>(other.memory.bytes);
    peer.signals = other.signals;
    if (r == rank_) {
      peer.memory = std::shared_ptr<void>(std::shared_ptr<void>(), data);
      peer.words = words;
    } else {
      peer.memory = map(other.memory, deviceIndex());
      peer.words = map(other.words, deviceIndex());
    }
  }
  peers_ = std::move(peers);
  sent_.assign(static_cast<size_t>(size_), 0);
  awaited_.assign(static_cast<size_t>(size_), 0);
  waits_ = std::make_shared<Waits>(words, static_cast<size_t>(size_), deviceIndex());
  release_ = std::make_shared<std::function<void()>>([waits = waits_] { waits->release(); });
  host_->atEnd(release_);
}

void GpuWindow::close() {
  const HostWait wait;
  awaitOwn();
  host_->exchange({});  // nobody writes here any more
  release_.reset();
  waits_.reset();
  const int rank = rank_;
  for (int r = 0; r < size_; ++r) {
    if (r != rank) peers_[static_cast<size_t>(r)] = {};
  }
  host_->exchange({});  // nobody has our memory mapped any more, but for views
  peers_.clear();
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
  return host_->enqueue(
      op, async_op, options,
      [&](Stream stream) {
        const Runtime& runtime = cuda();
        const bool capturing = runtime.isCapturing(stream);
        if (used_ && !capturing && stream != lastStream_) {
          runtime.check(runtime.streamWaitEvent(stream, last_.get(), 0), "making a stream wait");
        }
        issue(stream);
        if (capturing) return;
        ctran::gpu::PooledEvent end(host_->events());
        runtime.check(runtime.eventRecord(end.get(), stream), "recording an event");
        last_ = std::move(end);
        lastStream_ = stream;
        used_ = true;
      },
      std::move(hold), std::move(awaited));
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

TorchCommWindow::WorkPtr GpuWindow::write(int rank, int64_t number, uint64_t value, bool async_op,
                                          const OpOptions& options) {
  return enqueue(OpName::signal, async_op, options, [&](Stream stream) {
    // What the stream has done before is visible to all before the word is.
    cuda().check(Driver::get().streamWriteValue64(stream, wordOf(rank, number), value, 0),
                 "writing a signal");
  });
}

TorchCommWindow::WorkPtr GpuWindow::await(int64_t number, uint64_t value, unsigned comparison,
                                          std::vector<int> senders, bool async_op,
                                          const OpOptions& options) {
  waits_->add(number, value);
  return enqueue(
      OpName::wait_signal, async_op, options,
      [&](Stream stream) {
        cuda().check(
            Driver::get().streamWaitValue64(stream, wordOf(rank_, number), value, comparison),
            "waiting for a signal");
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

void GpuWindow::requireNoCapture(const char* what) const {
  if (!host_->isCapturing()) return;
  throw ctran::Error(
      ErrorKind::Unsupported,
      std::string(what) + " counts on the host, which knows nothing of a graph's replays", {}, what,
      "use numbered signals in a capture: signal(signal_disp, ...)");
}

TorchCommWindow::WorkPtr GpuWindow::addSignal(int dst, bool async_op, const OpOptions& options) {
  requireNoCapture("signal");
  return write(dst, rank_, ++sent_[static_cast<size_t>(dst)], async_op, options);
}

TorchCommWindow::WorkPtr GpuWindow::awaitSignal(int src, bool async_op, const OpOptions& options) {
  requireNoCapture("wait_signal");
  return await(src, ++awaited_[static_cast<size_t>(src)], kGreaterEqual, {src}, async_op, options);
}

TorchCommWindow::WorkPtr GpuWindow::setSignal(int64_t index, uint64_t value, int dst, bool async_op,
                                              const OpOptions& options) {
  return write(dst, size_ + index, value, async_op, options);
}

TorchCommWindow::WorkPtr GpuWindow::compareSignal(int64_t index, uint64_t value, SignalCmpOp op,
                                                  bool async_op, const OpOptions& options) {
  const int64_t number = size_ + index;
  switch (op) {
    case SignalCmpOp::EQ:
      return await(number, value, kEqual, others(), async_op, options);
    case SignalCmpOp::GE:
      return await(number, value, kGreaterEqual, others(), async_op, options);
    case SignalCmpOp::GT:
      return await(number, value + 1, kGreaterEqual, others(), async_op, options);
    default:
      throw ctran::Error(ErrorKind::Unsupported, "The streams of a GPU wait for EQ, GE and GT only",
                         {}, "wait_signal", "let the value grow, and wait for GE");
  }
}

}  // namespace torch::comms::gpu
