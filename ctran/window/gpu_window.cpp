#include "ctran/window/gpu_window.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "ctran/base/checked.h"
#include "ctran/base/error.h"
#include "ctran/collective/gpu/kernels.h"
#include "ctran/memory/device_segment.h"
#include "ctran/stream/backoff.h"
#include "ctran/stream/watchdog.h"
#include "ctran/window/agree.h"
#include "ctran/window/device_memory.h"
#include "ctran/window/signals.cuh"

namespace ctran {
namespace {

using gpu::addressOf;
using gpu::DevicePtr;
using gpu::Stream;
using std::chrono::microseconds;

constexpr size_t kWord = sizeof(uint64_t);
constexpr microseconds kWindowPause{100};
/// How long a window that goes waits for kernels that have been told to end.
constexpr std::chrono::seconds kWindowEndPatience{5};

/// What ranks tell each other when a window opens.
struct Opening : Said {
  SharedRange memory;
  SharedRange words;
  size_t signalWords;
};

/// What a rank says of itself is used for addresses only within what is mapped of its memory.
void checkOpening(const Opening& opening, int rank, int size) {
  Checked(opening.memory.bytes).atMost(PTRDIFF_MAX, rank, "bytes of memory", "window");
  const Checked words = Checked(opening.signalWords) + static_cast<uint64_t>(size);
  if (!words.isAtMost(opening.words.bytes / kWord)) {
    throw Error(ErrorKind::Mismatch,
                "rank " + std::to_string(rank) + " tells " + std::to_string(opening.signalWords) +
                    " words for signals, and memory of " + std::to_string(opening.words.bytes) +
                    " bytes for them and those of the ranks",
                {rank}, "window");
  }
}

/// The number of a comparison in device code.
uint32_t deviceComparison(Comparison comparison) {
  switch (comparison) {
    case Comparison::Equal:
      return device::kEqual;
    case Comparison::NotEqual:
      return device::kNotEqual;
    case Comparison::Less:
      return device::kLess;
    case Comparison::LessEqual:
      return device::kLessOrEqual;
    case Comparison::Greater:
      return device::kGreater;
    case Comparison::GreaterEqual:
      break;
  }
  return device::kGreaterOrEqual;
}

device::u64* wordAt(DevicePtr address) { return reinterpret_cast<device::u64*>(address); }

template <class Arguments>
void launch(gpu::Function kernel, Arguments arguments, Stream stream) {
  void* parameters[] = {&arguments};
  gpu::check(
      gpu::Driver::get().launchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr),
      "launching a kernel");
}

}  // namespace

GpuWindow::GpuWindow(int rank, int size, int device, std::unique_ptr<GpuWindowHost> host)
    : rank_(rank), size_(size), device_(device), host_(std::move(host)) {}

GpuWindow::~GpuWindow() { settle(); }

void GpuWindow::settle(WaitHooks* hooks) noexcept {
  try {
    if (Watchdog::isStopped()) endOwn(hooks);
    awaitOwn(hooks);
  } catch (const Error&) {  // the device is lost, and the memory with it
    used_ = false;
  } catch (...) {  // Ctrl-C
    endOwn(hooks);
  }
}

void GpuWindow::open(void* data, size_t bytes, size_t signalWords, WaitHooks* hooks) {
  const Blocking blocking(hooks);
  const size_t count = static_cast<size_t>(size_) + signalWords;
  std::shared_ptr<void> adopted, words;
  const auto all = agree<Opening>(*host_, rank_, [&](Opening& own) {
    const gpu::DeviceGuard active(device_);
    kernels_ = &SignalKernels::of(device_);
    counts_ = allocateDeviceWords(2 * static_cast<size_t>(size_), device_);
    abort_ = std::make_shared<gpu::MappedHostMemory>(device_, sizeof(uint32_t));
    adopted = DeviceSegment::adopt(device_, data, bytes);
    words = allocateDeviceWords(count, device_);
    own.memory = shareDeviceMemory(addressOf(data), bytes);
    own.words = shareDeviceMemory(addressOf(words.get()), count * kWord);
    own.signalWords = signalWords;
  });
  std::vector<Peer> peers(static_cast<size_t>(size_));
  agree<Said>(*host_, rank_, [&](Said&) {
    for (int r = 0; r < size_; ++r) {
      const Opening& other = all.at(static_cast<size_t>(r));
      Peer& peer = peers[static_cast<size_t>(r)];
      peer.bytes = other.memory.bytes;
      peer.signalWords = other.signalWords;
      if (r == rank_) {
        peer.memory = std::shared_ptr<void>(std::shared_ptr<void>(), data);
        peer.words = words;
      } else {
        checkOpening(other, r, size_);
        peer.memory = mappedFrom(other.memory, r, device_);
        peer.words = mappedFrom(other.words, r, device_);
      }
    }
  });
  peers_ = std::move(peers);
  adopted_ = std::move(adopted);
  release_ = std::make_shared<std::function<void()>>([abort = abort_] {
    std::atomic_ref(*static_cast<uint32_t*>(abort->host())).store(1, std::memory_order_relaxed);
  });
  host_->queue().onBreak(release_);
  kept_ = std::make_shared<Kept>(peers_, counts_, abort_, adopted_, release_);
}

void GpuWindow::close(WaitHooks* hooks) {
  awaitOwn(hooks);
  const Blocking blocking(hooks);
  if (isUntracked_) {  // of replays, and of the program's kernels, there are no events
    const gpu::DeviceGuard active(device_);
    gpu::check(gpu::Driver::get().ctxSynchronize(), "cuCtxSynchronize");
  }
  host_->exchange({});  // no rank writes here any more
  release_.reset();
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) peers_[static_cast<size_t>(r)] = {};
  }
  host_->exchange({});  // no rank has our memory mapped any more, except by views
  peers_.clear();
  if (kept_) *kept_ = {};
  adopted_.reset();
}

void GpuWindow::endOwn(WaitHooks* hooks) noexcept {
  if (!used_) return;
  const Blocking blocking(hooks);
  if (release_) (*release_)();
  try {
    const gpu::DeviceGuard active(device_);
    const auto until = std::chrono::steady_clock::now() + kWindowEndPatience;
    while (!runtime().isReached(last_.get()) && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(kWindowPause);
    }
  } catch (const Error&) {  // the device is lost
  }
  used_ = false;
}

void GpuWindow::awaitOwn(WaitHooks* hooks) {
  if (!used_) return;
  const Blocking blocking(hooks);
  const gpu::DeviceGuard active(device_);
  for (Backoff backoff(kWindowPause, kWindowPause, hooks); !runtime().isReached(last_.get());) {
    backoff.pause();
  }
  used_ = false;
}

DevicePtr GpuWindow::wordOf(int rank, size_t word) const {
  return addressOf(peers_.at(static_cast<size_t>(rank)).words.get()) + word * kWord;
}

DevicePtr GpuWindow::countOf(Count count, int rank) const {
  return addressOf(counts_.get()) + static_cast<size_t>(count * size_ + rank) * kWord;
}

/// Any of whom may set a numbered word.
std::vector<int> GpuWindow::others() const {
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) ranks.push_back(r);
  }
  return ranks;
}

GpuWindow::Operation GpuWindow::enqueue(const Issue& issue, Stream stream,
                                        const EnqueueOptions& options, std::vector<int> awaited) {
  struct Held {
    std::shared_ptr<Kept> window;
    std::shared_ptr<void> buffer;
  };
  const auto held = std::make_shared<Held>();
  if (options.keepAlive) held->buffer = options.keepAlive();
  EnqueueOptions behind = options;
  behind.keepAlive = [held] { return held; };
  return host_->enqueue(
      [&](Stream own) {
        const bool capturing = runtime().isCapturing(own);
        if (used_ && !capturing && own != lastStream_) {
          runtime().check(runtime().streamWaitEvent(own, last_.get(), 0), "making a stream wait");
        }
        issue(own);
        if (capturing) {
          isUntracked_ = true;
          held->window = kept_;
          return;
        }
        gpu::PooledEvent end(host_->queue().events());
        runtime().check(runtime().eventRecord(end.get(), own), "recording an event");
        last_ = std::move(end);
        lastStream_ = own;
        used_ = true;
      },
      std::move(awaited), stream, behind);
}

GpuWindow::Operation GpuWindow::copy(const void* to, const void* from, size_t bytes, Stream stream,
                                     const EnqueueOptions& options) {
  return enqueue(
      [&](Stream own) {
        if (bytes == 0) return;
        runtime().check(runtime().memcpyAsync(addressOf(to), addressOf(from), bytes, own),
                        "copying between devices");
      },
      stream, options);
}

GpuWindow::Operation GpuWindow::put(int target, size_t offset, const void* source, size_t bytes,
                                    Stream stream, const EnqueueOptions& options) {
  const auto* to = static_cast<const std::byte*>(mapped(target).get()) + offset;
  return copy(to, source, bytes, stream, options);
}

GpuWindow::Operation GpuWindow::get(int target, size_t offset, void* destination, size_t bytes,
                                    Stream stream, const EnqueueOptions& options) {
  const auto* from = static_cast<const std::byte*>(mapped(target).get()) + offset;
  return copy(destination, from, bytes, stream, options);
}

GpuWindow::Operation GpuWindow::flush(Stream stream, const EnqueueOptions& options) {
  return enqueue([](Stream) {}, stream, options);
}

GpuWindow::Operation GpuWindow::send(int target, size_t word, DevicePtr count, uint64_t value,
                                     Stream stream, const EnqueueOptions& options) {
  return enqueue(
      [&](Stream own) {
        launch(kernels_->send,
               device::SignalArguments{wordAt(wordOf(target, word)), wordAt(count), value}, own);
      },
      stream, options);
}

GpuWindow::Operation GpuWindow::await(size_t word, DevicePtr count, uint64_t value,
                                      Comparison comparison, std::vector<int> senders,
                                      Stream stream, const EnqueueOptions& options) {
  return enqueue(
      [&](Stream own) {
        launch(kernels_->await,
               device::AwaitSignalArguments{wordAt(wordOf(rank_, word)), wordAt(count), value,
                                            deviceComparison(comparison),
                                            reinterpret_cast<const uint32_t*>(abort_->device())},
               own);
      },
      stream, options, std::move(senders));
}

GpuWindow::Operation GpuWindow::signal(int target, Stream stream, const EnqueueOptions& options) {
  return send(target, static_cast<size_t>(rank_), countOf(Sent, target), 0, stream, options);
}

GpuWindow::Operation GpuWindow::waitSignal(int origin, Stream stream,
                                           const EnqueueOptions& options) {
  return await(static_cast<size_t>(origin), countOf(Awaited, origin), 0, Comparison::GreaterEqual,
               {origin}, stream, options);
}

GpuWindow::Operation GpuWindow::setWord(int target, size_t word, uint64_t value, Stream stream,
                                        const EnqueueOptions& options) {
  return send(target, static_cast<size_t>(size_) + word, 0, value, stream, options);
}

GpuWindow::Operation GpuWindow::waitWord(size_t word, Comparison comparison, uint64_t value,
                                         Stream stream, const EnqueueOptions& options) {
  return await(static_cast<size_t>(size_) + word, 0, value, comparison, others(), stream, options);
}

std::shared_ptr<void> GpuWindow::allocate(size_t bytes, int device) {
  return allocateDeviceMemory(bytes, device);
}

}  // namespace ctran
