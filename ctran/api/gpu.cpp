#include "ctran/gpu.h"

#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <type_traits>

#include "ctran/gpu/discard.h"
#include "ctran/gpu/memory.h"
#include "ctran/memory/device_sharing.h"

namespace ctran::api {
namespace {

gpu::Stream engineStream(GpuStream stream) { return static_cast<gpu::Stream>(stream); }

/// A graph that can be launched.
class Executable {
 public:
  explicit Executable(gpu::Graph graph) : graph_(graph) {
    gpu::check(gpu::Driver::get().graphInstantiate(&executable_, graph, 0), "making a graph");
  }
  ~Executable() {
    if (executable_ != nullptr) gpu::Driver::get().graphExecDestroy(executable_);
    gpu::Driver::get().graphDestroy(graph_);
  }
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  void launch(gpu::Stream stream) const {
    gpu::check(gpu::Driver::get().graphLaunch(executable_, stream), "launching a graph");
  }

 private:
  const gpu::Graph graph_;
  gpu::GraphExec executable_ = nullptr;
};

}  // namespace

int gpuCount() { return gpu::deviceCount(); }
std::string gpuName(int device) { return gpu::deviceName(device); }

std::string gpuLinks() {
  using gpu::PeerAttribute;
  const gpu::Driver& driver = gpu::Driver::get();
  std::string links;
  const int count = gpuCount();
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      if (from == to) continue;
      links += (links.empty() ? "" : " ") + std::to_string(from) + "-" + std::to_string(to) + ":";
      for (const auto which : {PeerAttribute::AccessSupported, PeerAttribute::NativeAtomics,
                               PeerAttribute::PerformanceRank}) {
        int value = 0;
        gpu::check(driver.deviceGetP2PAttribute(&value, which, gpu::deviceHandle(from),
                                                gpu::deviceHandle(to)),
                   "cuDeviceGetP2PAttribute");
        links += (links.back() == ':' ? "" : ",") + std::to_string(value);
      }
    }
  }
  return links;
}

std::optional<int> currentGpu() { return gpu::currentDevice(); }
std::optional<int> gpuOf(const void* memory) { return gpu::deviceOf(memory); }
bool isCapturing(GpuStream stream) {
  return gpu::Runtime::of(gpu::Platform::Cuda).isCapturing(engineStream(stream));
}
void copyOn(GpuStream stream, int device, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const gpu::DeviceGuard active(device);
  gpu::copyAsync(gpu::addressOf(to), gpu::addressOf(from), bytes, engineStream(stream));
}

GpuLaunch::GpuLaunch(GpuStream stream) noexcept
    : stream_(stream), launching_(std::make_unique<gpu::Launching>()) {}
GpuLaunch::~GpuLaunch() { gpu::keepUntilReached(engineStream(stream_)); }

struct OwnGpuStream::State {
  State(int device, size_t words)
      : device(device),
        stream(runtime, device, false),
        wordCount(words),
        words(words > 0 ? allocateForGpus(words * sizeof(uint64_t)) : nullptr) {}

  /// The device is current meanwhile, and a capture of this thread's is left alone.
  struct Active {
    explicit Active(const State& state)
        : device(state.runtime, state.device), relaxed(state.runtime) {}
    const gpu::ActiveDevice device;
    const gpu::RelaxedCapture relaxed;
  };

  const gpu::Runtime& runtime = gpu::Runtime::of(gpu::Platform::Cuda);
  const int device;
  const gpu::OwnStream stream;
  /// What `set` copies from, one word after the other.
  const size_t wordCount;
  const std::shared_ptr<void> words;
  size_t wordsUsed = 0;
};

OwnGpuStream::OwnGpuStream(int device, size_t words)
    : state_(std::make_unique<State>(device, words)) {}
OwnGpuStream::~OwnGpuStream() = default;
GpuStream OwnGpuStream::get() const { return state_->stream.get(); }

void OwnGpuStream::copy(void* toDevice, const void* from, size_t bytes) {
  const State::Active active(*state_);
  gpu::check(gpu::Driver::get().memcpyHtoDAsync(gpu::addressOf(toDevice), from, bytes,
                                                state_->stream.get()),
             "copying to the device");
}

void OwnGpuStream::read(void* to, const void* fromDevice, size_t bytes) {
  const State::Active active(*state_);
  const gpu::Driver& driver = gpu::Driver::get();
  gpu::check(driver.memcpyDtoHAsync(to, gpu::addressOf(fromDevice), bytes, state_->stream.get()),
             "copying to the host");
  gpu::check(driver.streamSynchronize(state_->stream.get()), "waiting for a stream");
}

void OwnGpuStream::move(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const State::Active active(*state_);
  gpu::check(gpu::Driver::get().memcpyAsync(gpu::addressOf(to), gpu::addressOf(from), bytes,
                                            state_->stream.get()),
             "copying");
}

void OwnGpuStream::set(uint64_t* word, uint64_t value) {
  if (state_->wordCount == 0) {
    throw Error(ErrorKind::InvalidArgument, "the stream was made without words to set");
  }
  const size_t next = state_->wordsUsed++ % state_->wordCount;
  if (next == 0 && state_->wordsUsed > 1) synchronize();  // the words from before have been read
  auto* const from = static_cast<uint64_t*>(state_->words.get()) + next;
  *from = value;
  move(word, from, sizeof value);
}

void OwnGpuStream::clear(void* onDevice, size_t bytes) {
  const State::Active active(*state_);
  gpu::check(gpu::Driver::get().memsetD32Async(gpu::addressOf(onDevice), 0,
                                               bytes / sizeof(uint32_t), state_->stream.get()),
             "clearing memory");
}

void OwnGpuStream::synchronize() {
  const State::Active active(*state_);
  gpu::check(gpu::Driver::get().streamSynchronize(state_->stream.get()), "waiting for a stream");
}

std::function<void()> OwnGpuStream::capture(const std::function<void()>& enqueue) {
  const gpu::ActiveDevice active(gpu::Runtime::of(gpu::Platform::Cuda), state_->device);
  const gpu::Driver& driver = gpu::Driver::get();
  const gpu::Stream stream = state_->stream.get();
  gpu::Graph graph = nullptr;
  gpu::check(driver.streamBeginCapture(stream, gpu::CaptureMode::Global), "capturing");
  try {
    enqueue();
  } catch (...) {
    driver.streamEndCapture(stream, &graph);
    if (graph != nullptr) driver.graphDestroy(graph);
    throw;
  }
  gpu::check(driver.streamEndCapture(stream, &graph), "capturing");
  return [executable = std::make_shared<Executable>(graph), stream] { executable->launch(stream); };
}

GpuAllocation gpuAllocationOf(const void* memory) {
  GpuAllocation found;
  const gpu::Driver* const driver = gpu::Driver::ifLoaded();
  unsigned type = 0;
  const auto ask = [&](gpu::PointerAttribute which, void* value) {
    return driver->pointerGetAttribute(value, which, gpu::addressOf(memory)) == gpu::kSuccess;
  };
  if (driver == nullptr || memory == nullptr || !ask(gpu::PointerAttribute::MemoryType, &type) ||
      type != gpu::kMemoryOfDevice) {
    return found;
  }
  ask(gpu::PointerAttribute::DeviceOrdinal, &found.device);
  ask(gpu::PointerAttribute::BufferId, &found.id);
  return found;
}

std::shared_ptr<void> allocateOnGpu(int device, size_t bytes) {
  const gpu::Runtime& runtime = gpu::Runtime::of(gpu::Platform::Cuda);
  const gpu::RelaxedCapture relaxed(runtime);
  const gpu::ActiveDevice active(runtime, device);
  auto segment = DeviceSegment::allocate(device, bytes);
  OwnGpuStream stream(device);
  void* const memory = reinterpret_cast<void*>(segment->address());
  stream.clear(memory, segment->size());
  stream.synchronize();
  return {memory, [segment = std::move(segment)](void*) mutable {
            DeviceSegment::release(std::move(segment));
          }};
}

std::shared_ptr<void> allocateForGpus(size_t bytes) {
  const gpu::RelaxedCapture relaxed(gpu::Runtime::of(gpu::Platform::Cuda));
  // Not of the driver, which takes back what it gave when the process ends, while threads poll it.
  const auto memory = std::make_shared<gpu::SharedHostMemory>(
      gpu::SharedHostMemory::allocate(gpu::currentDevice().value_or(0), "ctran for gpus", bytes));
  if (gpu::addressOf(memory->host()) != memory->address()) {
    throw Error(ErrorKind::Unsupported, "GPUs of this host do not share its addresses");
  }
  return {memory, memory->host()};
}

namespace {

static_assert(sizeof(SharedRange) <= sizeof(GpuMemoryName));
static_assert(std::is_trivially_copyable_v<SharedRange>);

/// What has been mapped of each segment: channels of one pair of ranks name the same ones.
class OpenSegments {
 public:
  static OpenSegments& all() {
    static auto& one = *new OpenSegments;
    return one;
  }

  /// Names of one segment that tell different sizes have mappings of their own.
  std::shared_ptr<void> open(const SharedRange& range, int device) {
    const std::lock_guard lock(mutex_);
    std::erase_if(open_, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<void>& known =
        open_[{range.segment.key, range.segment.number, range.segment.bytes, device}];
    if (auto mapped = known.lock()) return mapped;
    SharedRange whole = range;
    whole.offset = 0;
    whole.bytes = range.segment.bytes;
    std::shared_ptr<void> mapped = mapDeviceMemory(whole, device);
    known = mapped;
    return mapped;
  }

 private:
  using Name = std::tuple<JobKey, uint64_t, uint64_t, int>;

  std::mutex mutex_;
  std::map<Name, std::weak_ptr<void>> open_;
};

/// `memory`, whose last owner first waits for what runs on the device.
std::shared_ptr<void> untilIdle(std::shared_ptr<void> memory, int device) {
  void* const at = memory.get();
  return {at, [memory = std::move(memory), device](void*) {
            try {
              const gpu::Runtime& runtime = gpu::Runtime::of(gpu::Platform::Cuda);
              const gpu::ActiveDevice active(runtime, device);
              const gpu::RelaxedCapture relaxed(runtime);
              gpu::Driver::get().ctxSynchronize();
            } catch (const Error&) {  // the device is lost
            }
          }};
}

}  // namespace

SharedGpuMemory shareGpuMemory(const void* memory, size_t bytes) {
  SharedGpuMemory shared;
  const GpuAllocation allocation = gpuAllocationOf(memory);
  if (allocation.device < 0) {
    throw Error(ErrorKind::InvalidArgument, "the address is not in memory of a GPU");
  }
  const gpu::Runtime& runtime = gpu::Runtime::of(gpu::Platform::Cuda);
  const gpu::RelaxedCapture relaxed(runtime);
  const gpu::ActiveDevice active(runtime, allocation.device);
  shared.held = DeviceSegment::adopt(allocation.device, memory, bytes);
  const SharedRange range = shareDeviceMemory(gpu::addressOf(memory), bytes);
  std::memcpy(shared.name.data(), &range, sizeof range);
  return shared;
}

std::shared_ptr<void> openGpuMemory(const GpuMemoryName& name, size_t bytes, int device) {
  SharedRange range;
  std::memcpy(&range, name.data(), sizeof range);
  if (range.bytes != bytes) {
    throw Error(ErrorKind::InvalidArgument,
                "that is not the name of " + std::to_string(bytes) + " bytes of GPU memory");
  }
  const gpu::RelaxedCapture relaxed(gpu::Runtime::of(gpu::Platform::Cuda));
  if (bytes == 0 || !range.isSegment) return untilIdle(mapDeviceMemory(range, device), device);
  if (range.offset > range.segment.bytes || bytes > range.segment.bytes - range.offset) {
    throw Error(ErrorKind::InvalidArgument, "a name of GPU memory reaches beyond its allocation");
  }
  const std::shared_ptr<void> whole = OpenSegments::all().open(range, device);
  return untilIdle({whole, static_cast<std::byte*>(whole.get()) + range.offset}, device);
}

}  // namespace ctran::api
