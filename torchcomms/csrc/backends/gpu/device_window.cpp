#include "torchcomms/csrc/backends/gpu/device_window.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "ctran/base/rank_list.h"
#include "ctran/gpu/peers.h"
#include "ctran/os/process.h"
#include "ctran/stream/watchdog.h"
#include "ctran/window/agree.h"
#include "ctran/window/device_memory.h"

namespace torch::comms::gpu {

namespace {

using ctran::Error;
using ctran::ErrorKind;
using ctran::gpu::addressOf;
using torchcomms::device::DeviceWindowPeer;
using torchcomms::device::DeviceWindowReport;
using torchcomms::device::DeviceWindowState;
using torchcomms::device::What;
using torchcomms::device::Word;

constexpr size_t kWord = sizeof(Word);
constexpr size_t kStateWords = sizeof(DeviceWindowState) / kWord;
constexpr size_t kPeerWords = sizeof(DeviceWindowPeer) / kWord;
static_assert(sizeof(DeviceWindowState) % kWord == 0 && sizeof(DeviceWindowPeer) % kWord == 0);

struct Offer : ctran::Said {
  DeviceWindow::Counts counts;
  ctran::SharedRange words;
  uint64_t pciAddress;
};

std::string describe(const DeviceWindow::Counts& counts) {
  return std::to_string(counts.signals) + " signals, " + std::to_string(counts.counters) +
         " counters and " + std::to_string(counts.barriers) + " barriers";
}

/// All ranks compare the same offers, so that all throw alike.
void checkAlike(const std::vector<Offer>& offers) {
  for (size_t r = 1; r < offers.size(); ++r) {
    const std::string whose = "rank " + std::to_string(r);
    const std::vector<int> ranks{static_cast<int>(r)};
    if (offers[r].counts != offers[0].counts) {
      throw Error(ErrorKind::Mismatch,
                  "get_device_window: " + whose + " asks for " + describe(offers[r].counts) +
                      ", rank 0 for " + describe(offers[0].counts),
                  ranks, "window", "all ranks have to ask for the same");
    }
    if (offers[r].words.bytes != offers[0].words.bytes) {
      throw Error(ErrorKind::Mismatch, whose + " has other memory for signals than rank 0", ranks,
                  "window");
    }
  }
}

void checkLink(const Offer& other, int rank, int device) {
  if (ctran::gpu::hasNativeAtomics(device, other.pciAddress)) return;
  throw Error(ErrorKind::Unsupported,
              "get_device_window: the link to the GPU of rank " + std::to_string(rank) +
                  " is not known to carry atomic operations, which signals of kernels need",
              {rank}, "window",
              "NVLink does, between GPUs that the process sees (CUDA_VISIBLE_DEVICES); elsewhere "
              "use put() and signal() of the window");
}

/// A number that a kernel has as an int.
std::string shown(Word value) { return std::to_string(static_cast<int64_t>(value)); }

std::string argumentOf(const DeviceWindowReport& report) {
  const std::string count = std::to_string(report.limit);
  switch (report.what) {
    case What::Signal:
      return "named signal " + shown(report.value) + " of " + count;
    case What::Counter:
      return "named counter " + shown(report.value) + " of " + count;
    case What::Barrier:
      return "named barrier " + shown(report.value) + " of " + count;
    case What::Rank:
      return "named rank " + shown(report.value) + " of " + count;
    case What::Destination:
    case What::Source:
      break;
  }
  const std::string where = report.what == What::Source
                                ? " of a buffer"
                                : " of the memory of rank " + std::to_string(report.peer);
  return "put " + std::to_string(report.bytes) + " bytes, from byte " +
         std::to_string(report.value) + " on" + where + ", which has " + count;
}

/// What a kernel has said.
Error errorOf(const DeviceWindowReport& report, const ctran::StreamQueue& queue,
              std::chrono::milliseconds timeout) {
  const int rank = queue.rank();
  const std::string kernel =
      "a kernel of communicator '" + queue.name() + "' on rank " + std::to_string(rank);
  if (report.status == torchcomms::device::kOutOfRange) {
    return {ErrorKind::InvalidArgument, kernel + " " + argumentOf(report), {rank}, "device window"};
  }
  std::vector<int> awaited;
  for (int r = 0; r < queue.size(); ++r) {
    if (report.peer == r || (report.peer == -1 && r != rank)) awaited.push_back(r);
  }
  const char* what = report.what == What::Signal    ? "signal "
                     : report.what == What::Counter ? "counter "
                                                    : "barrier ";
  return {ErrorKind::Timeout,
          kernel + " has waited for " + what + std::to_string(report.value) +
              " of its window for more than " + std::to_string(timeout.count()) +
              " ms: it waited for rank " + ctran::listed(awaited),
          awaited, "device window", "does every signal that is waited for get sent?"};
}

}  // namespace

struct DeviceWindow::Kept {
  ctran::gpu::MappedHostMemory report;
  std::shared_ptr<void> words;  ///< that others write
  std::shared_ptr<void> state;  ///< of kernels here
  std::vector<std::shared_ptr<void>> mapped;

  DeviceWindowReport& said() { return *static_cast<DeviceWindowReport*>(report.host()); }
};

DeviceWindow::DeviceWindow(ctran::GpuWindow& window, int rank, int size, int device,
                           const Counts& counts)
    : counts_(counts), device_(device), process_(ctran::processToken()) {
  const auto ranks = static_cast<size_t>(size);
  ctran::GpuWindowHost& host = window.host();
  std::shared_ptr<Kept> kept;
  const auto offers = ctran::agree<Offer>(host, rank, [&](Offer& own) {
    const ctran::gpu::DeviceGuard active(device);
    kept.reset(new Kept{{device, sizeof(DeviceWindowReport)}, {}, {}, {}});
    const size_t words = std::max<size_t>((counts.signals + counts.barriers) * ranks, 1);
    kept->words = ctran::allocateDeviceWords(words, device);
    own.counts = counts;
    own.words = ctran::shareDeviceMemory(addressOf(kept->words.get()), words * kWord);
    own.pciAddress = ctran::gpu::pciAddressOf(device);
  });
  checkAlike(offers);
  ctran::agree<ctran::Said>(host, rank, [&](ctran::Said&) {
    std::vector<DeviceWindowPeer> peers(ranks);
    for (int r = 0; r < size; ++r) {
      const auto index = static_cast<size_t>(r);
      checkLink(offers.at(index), r, device);
      const auto words =
          r == rank ? kept->words : ctran::mappedFrom(offers[index].words, r, device);
      const auto& memory = window.mapped(r);
      peers[index] = {static_cast<char*>(memory.get()), window.bytes(r),
                      static_cast<Word*>(words.get())};
      kept->mapped.insert(kept->mapped.end(), {words, memory});
    }
    // One piece: the state, the ranks, counters, rounds of barriers, and the failure.
    const size_t countersAt = kStateWords + ranks * kPeerWords;
    const size_t roundsAt = countersAt + counts.counters;
    const size_t failedAt = roundsAt + counts.barriers;
    std::vector<uint64_t> content(failedAt + 1);
    std::memcpy(content.data() + kStateWords, peers.data(), ranks * sizeof(DeviceWindowPeer));
    kept->state = ctran::allocateDeviceWords(content.size(), device);
    auto* const words = static_cast<Word*>(kept->state.get());
    DeviceWindowState state;
    state.rank = rank;
    state.ranks = size;
    state.signals = counts.signals;
    state.counters = counts.counters;
    state.barriers = counts.barriers;
    state.timeoutNanos = static_cast<Word>(std::chrono::nanoseconds(host.timeout()).count());
    state.peers = reinterpret_cast<const DeviceWindowPeer*>(words + kStateWords);
    state.counts = words + countersAt;
    state.rounds = words + roundsAt;
    state.failed = reinterpret_cast<unsigned*>(words + failedAt);
    state.report = reinterpret_cast<DeviceWindowReport*>(kept->report.device());
    std::memcpy(content.data(), &state, sizeof state);
    ctran::writeDeviceWords(kept->state.get(), content, device);
  });
  kept_ = std::move(kept);
  abort_ = std::make_shared<std::function<void()>>(
      [kept = kept_] { std::atomic_ref(kept->said().abort).store(1, std::memory_order_relaxed); });
  look_ = std::make_shared<std::function<void()>>(
      [kept = kept_, &queue = host.queue(), timeout = host.timeout()] {
        const auto status = std::atomic_ref(kept->said().status).load(std::memory_order_acquire);
        if (status != 0) queue.breakWith(errorOf(kept->said(), queue, timeout));
      });
  host.queue().onBreak(abort_);
  host.queue().onInspect(look_);
}

DeviceWindow::~DeviceWindow() {
  if (!kept_ || process_ != ctran::processToken()) return;
  (*abort_)();
  abort_.reset();
  look_.reset();
  const auto release = [kept = std::move(kept_), device = device_]() mutable {
    try {
      const ctran::gpu::DeviceGuard active(device);
      const ctran::gpu::RelaxedCapture relaxed(ctran::gpu::Runtime::of(ctran::gpu::Platform::Cuda));
      static_cast<void>(ctran::gpu::Driver::get().ctxSynchronize());
    } catch (const Error&) {  // the device is lost, and the memory with it
    }
    kept.reset();
  };
  try {
    ctran::Watchdog::spawn("ctran-free", release);
  } catch (const Error&) {  // no thread: what the mappings hold goes as it does elsewhere
  }
}

void DeviceWindow::look() {
  if (process_ == ctran::processToken()) (*look_)();
}

uint64_t DeviceWindow::address() const { return addressOf(kept_->state.get()); }

}  // namespace torch::comms::gpu
