// A stand-in for libcuda.so.1: the part of the driver's interface that streams, events, graph
// capture, memory and kernels need, in host memory. A stream is a queue with a thread. Device
// memory is a file that other processes map; a module is a shared library, made by the stand-in for
// the compiler; a kernel runs with one thread for each block. It keeps the driver's rules where
// breaking them would hurt on a real GPU: who queries an event while another thread captures in
// global mode, queries a captured event, or waits in a capture for what is outside, gets the
// driver's error and spoils the capture. A process has the GPU that STAND_IN_GPU numbers as its
// first one, and sees the others behind it. STAND_IN_GPU_DIRECT=0: RDMA devices do not reach a
// GPU's memory; ordered: what they write needs no flush.

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "ctran/gpu/device/block.cuh"
#include "ctran/gpu/driver.h"

#define STAND_IN extern "C" __attribute__((visibility("default")))

namespace ctran::gpu {

namespace {

constexpr int kGpus = 64;
constexpr Result kInvalidValue = 1;
constexpr Result kOutOfMemory = 2;
constexpr Result kInvalidContext = 201;
constexpr Result kPeerAccessUnsupported = 217;
constexpr Result kCaptureUnsupported = 900;
constexpr Result kCaptureInvalidated = 901;
constexpr Result kCaptureIsolation = 905;
constexpr Result kCapturedEvent = 907;

using Task = std::function<void()>;

struct Keepsake {
  void* value;
  void (*destroy)(void*);
  ~Keepsake() {
    // The driver does it on a thread of its own.
    std::thread(destroy, value).join();
  }
};

}  // namespace

struct UserObjectTag {
  std::shared_ptr<Keepsake> keepsake;
};

/// A task, or an event that is recorded anew by each launch.
struct GraphNodeTag {
  Task task;
  Event external = nullptr;
};

struct GraphTag {
  std::vector<GraphNodeTag> nodes;
  std::vector<std::shared_ptr<Keepsake>> kept;
};

struct GraphExecTag : GraphTag {};

struct EventTag {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0;
  std::set<uint64_t> ahead;  ///< records that their streams have not reached yet, in any order
  bool isTimed = true;
  std::chrono::steady_clock::time_point reachedAt;
  std::atomic<StreamTag*> capturedBy{nullptr};
  uint64_t captured = 0;  ///< how much that stream had captured by then
};

namespace {

/// What streams capture: the one that began it, and those that have been made to wait for it. It is
/// replayed in the order of the calls, one of those that a GPU may choose.
struct Capture {
  std::vector<StreamTag*> joined;
  CaptureMode mode = CaptureMode::Global;
  CaptureStatus status = CaptureStatus::Active;
  std::thread::id thread = std::this_thread::get_id();
  Graph graph = new GraphTag;
  uint64_t id = 0;
};

std::atomic<int> globalCaptures{0};
std::mutex capturesMutex;
std::vector<std::shared_ptr<Capture>> captures;
thread_local CaptureMode threadMode = CaptureMode::Global;
thread_local Stream hostStream = nullptr;

struct Allocation {
  size_t bytes;
  int fd;
  uint64_t id;
};
std::mutex allocationsMutex;
std::atomic<uint64_t> allocationIds{0};
std::map<DevicePtr, Allocation> allocations;
/// Memory of other processes.
struct Opened {
  std::string name;
  ino_t file;  ///< which of all that have had this name
  size_t bytes;
  int times;
};
std::map<DevicePtr, Opened> opened;

/// What a call that must not happen during a capture of global mode does to it.
Result unsafeCall() {
  if (globalCaptures == 0 || threadMode == CaptureMode::Relaxed) return kSuccess;
  const std::lock_guard lock(capturesMutex);
  bool spoiled = false;
  for (const auto& capture : captures) {
    if (capture->mode != CaptureMode::Global) continue;
    capture->status = CaptureStatus::Invalidated;
    spoiled = true;
  }
  return spoiled ? kCaptureUnsupported : kSuccess;
}

/// Held by itself while memory is freed: no other call gets into the driver meanwhile.
std::shared_mutex driverMutex;

}  // namespace

struct StreamTag {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> tasks;
  bool busy = false;
  bool closed = false;
  std::shared_ptr<Capture> capture;
  uint64_t captured = 0;    ///< so much of it
  uint64_t waitedUpTo = 0;  ///< so much of that, another stream of the capture waits for
  std::thread thread{[this] { serve(); }};

  void serve() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return closed || !tasks.empty(); });
      if (tasks.empty()) return;
      Task task = std::move(tasks.front());
      tasks.pop_front();
      busy = true;
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }

  Result push(Task task) {
    const std::shared_lock enters(driverMutex);
    const std::lock_guard lock(mutex);
    if (capture) {
      if (capture->status != CaptureStatus::Active) return kCaptureInvalidated;
      capture->graph->nodes.push_back({std::move(task)});
      ++captured;
      return kSuccess;
    }
    tasks.push_back(std::move(task));
    changed.notify_all();
    return kSuccess;
  }

  bool idle() {
    const std::lock_guard lock(mutex);
    return tasks.empty() && !busy;
  }

  void drain() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return tasks.empty() && !busy; });
  }
};

namespace {

std::mutex streamsMutex;
std::set<StreamTag*> streams;

StreamTag& of(Stream stream) {
  // Never destroyed: its thread runs until the process ends.
  static StreamTag& byDefault = *new StreamTag;
  return stream ? *stream : byDefault;
}

}  // namespace

STAND_IN Result cuInit(unsigned) { return kSuccess; }

STAND_IN Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

STAND_IN Result cuGetErrorString(Result, const char** text) {
  *text = "an error of the stand-in";
  return kSuccess;
}

STAND_IN Result cuGetErrorName(Result, const char** text) {
  *text = "STAND_IN_ERROR";
  return kSuccess;
}

STAND_IN Result cuDeviceGetCount(int* count) {
  *count = kGpus;
  return kSuccess;
}

STAND_IN Result cuDeviceGet(Device* device, int ordinal) {
  *device = ordinal;
  return kSuccess;
}

STAND_IN Result cuDeviceGetName(char* name, int bytes, Device) {
  std::snprintf(name, bytes, "Stand-in");
  return kSuccess;
}

/// STAND_IN_ATOMICS=0: links that carry no atomic operations.
STAND_IN Result cuDeviceGetP2PAttribute(int* value, PeerAttribute which, Device, Device) {
  const char* said = std::getenv("STAND_IN_ATOMICS");
  const bool lacks = said != nullptr && std::strcmp(said, "0") == 0;
  *value = which != PeerAttribute::NativeAtomics || !lacks;
  return kSuccess;
}

STAND_IN Result cuDevicePrimaryCtxRetain(Context* context, Device) {
  static char primary;
  *context = reinterpret_cast<Context>(&primary);
  return kSuccess;
}

thread_local Context currentContext = nullptr;

STAND_IN Result cuCtxSetCurrent(Context context) {
  currentContext = context;
  return kSuccess;
}

STAND_IN Result cuCtxGetCurrent(Context* context) {
  *context = currentContext;
  return kSuccess;
}

STAND_IN Result cuCtxGetDevice(Device* device) {
  *device = 0;
  return currentContext ? kSuccess : kInvalidContext;
}

STAND_IN Result cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return currentContext ? kSuccess : kInvalidContext;
}

std::atomic<int> urgentStreams{0};

/// How many streams of high priority have been made.
STAND_IN int ctranStandInUrgentStreams() { return urgentStreams; }

STAND_IN Result cuStreamCreateWithPriority(Stream* stream, unsigned, int priority) {
  if (!currentContext) return 201;
  if (priority < 0) ++urgentStreams;
  *stream = new StreamTag;
  const std::lock_guard lock(streamsMutex);
  streams.insert(*stream);
  return kSuccess;
}

STAND_IN Result cuStreamDestroy_v2(Stream stream) {
  {
    const std::lock_guard lock(streamsMutex);
    streams.erase(stream);
  }
  {
    const std::lock_guard lock(stream->mutex);
    stream->closed = true;
    stream->changed.notify_all();
  }
  stream->thread.join();
  // Somebody may wait for the whole device, and for this one with it: it is kept.
  static std::vector<Stream>& graveyard = *new std::vector<Stream>;
  const std::lock_guard lock(streamsMutex);
  graveyard.push_back(stream);
  return kSuccess;
}

STAND_IN Result cuStreamSynchronize(Stream stream) {
  if (const Result result = unsafeCall()) return result;
  of(stream).drain();
  return kSuccess;
}

namespace {

void drainAll() {
  std::vector<StreamTag*> present;
  {
    const std::lock_guard lock(streamsMutex);
    present.assign(streams.begin(), streams.end());
  }
  for (StreamTag* stream : present) stream->drain();
  of(nullptr).drain();
}

/// What cuMemFree, cuMemFreeHost, cuMemHostUnregister and cuIpcCloseMemHandle do first, with all
/// that waits in vain meanwhile: as measured on H100 and H200 with driver 580.
class Freeing {
 public:
  Freeing() { drainAll(); }

 private:
  const std::unique_lock<std::shared_mutex> alone_{driverMutex};
};

}  // namespace

STAND_IN Result cuCtxSynchronize() {
  if (const Result result = unsafeCall()) return result;
  drainAll();
  return kSuccess;
}

STAND_IN Result cuStreamQuery(Stream stream) {
  if (const Result result = unsafeCall()) return result;
  return of(stream).idle() ? kSuccess : kNotReady;
}

STAND_IN Result cuStreamIsCapturing(Stream stream, CaptureStatus* status) {
  StreamTag& one = of(stream);
  const std::lock_guard lock(one.mutex);
  *status = one.capture ? one.capture->status : CaptureStatus::None;
  return kSuccess;
}

STAND_IN Result cuStreamGetCaptureInfo_v2(Stream stream, CaptureStatus* status, uint64_t* id,
                                          Graph* graph, const GraphNode**, size_t*) {
  StreamTag& one = of(stream);
  const std::lock_guard lock(one.mutex);
  *status = one.capture ? one.capture->status : CaptureStatus::None;
  if (one.capture) {
    *id = one.capture->id;
    *graph = one.capture->graph;
  }
  return kSuccess;
}

STAND_IN Result cuThreadExchangeStreamCaptureMode(CaptureMode* mode) {
  std::swap(*mode, threadMode);
  return kSuccess;
}

STAND_IN Result cuStreamBeginCapture_v2(Stream stream, CaptureMode mode) {
  static std::atomic<uint64_t> ids{0};
  auto capture = std::make_shared<Capture>();
  capture->mode = mode;
  capture->id = ++ids;
  capture->joined.push_back(stream);
  {
    const std::lock_guard lock(capturesMutex);
    captures.push_back(capture);
  }
  if (mode == CaptureMode::Global) ++globalCaptures;
  StreamTag& one = of(stream);
  const std::lock_guard lock(one.mutex);
  one.capture = capture;
  return kSuccess;
}

STAND_IN Result cuStreamEndCapture(Stream stream, Graph* graph) {
  StreamTag& one = of(stream);
  std::shared_ptr<Capture> capture;
  {
    const std::lock_guard lock(one.mutex);
    capture.swap(one.capture);
  }
  if (!capture) return kInvalidValue;
  for (StreamTag* other : capture->joined) {
    if (other == stream) continue;
    const std::lock_guard lock(other->mutex);
    other->capture = nullptr;
    if (other->waitedUpTo < other->captured) capture->status = CaptureStatus::Invalidated;
  }
  if (capture->mode == CaptureMode::Global) --globalCaptures;
  const std::lock_guard lock(capturesMutex);
  std::erase(captures, capture);
  if (capture->status != CaptureStatus::Active) {
    delete capture->graph;
    return kCaptureInvalidated;
  }
  *graph = capture->graph;
  return kSuccess;
}

STAND_IN Result cuGraphInstantiateWithFlags(GraphExec* made, Graph graph, unsigned long long) {
  *made = new GraphExecTag{*graph};
  return kSuccess;
}

STAND_IN Result cuGraphExecDestroy(GraphExec graph) {
  delete graph;
  return kSuccess;
}

STAND_IN Result cuGraphDestroy(Graph graph) {
  delete graph;
  return kSuccess;
}

STAND_IN Result cuUserObjectCreate(UserObject* object, void* value, void (*destroy)(void*),
                                   unsigned, unsigned) {
  *object = new UserObjectTag{std::shared_ptr<Keepsake>(new Keepsake{value, destroy})};
  return kSuccess;
}

STAND_IN Result cuGraphRetainUserObject(Graph graph, UserObject object, unsigned, unsigned flags) {
  graph->kept.push_back(object->keepsake);
  if (flags & kGraphMoveUserObject) delete object;
  return kSuccess;
}

STAND_IN Result cuEventCreate(Event* event, unsigned flags) {
  if (!currentContext) return 201;
  *event = new EventTag;
  (*event)->isTimed = (flags & kEventDisableTiming) == 0;
  return kSuccess;
}

STAND_IN Result cuEventDestroy_v2(Event event) {
  // Streams may still have to reach it, or wait for it: it is kept.
  static std::mutex mutex;
  static std::vector<Event>& graveyard = *new std::vector<Event>;
  const std::lock_guard lock(mutex);
  graveyard.push_back(event);
  return kSuccess;
}

STAND_IN Result cuEventRecord(Event event, Stream stream) {
  StreamTag& one = of(stream);
  {
    const std::lock_guard lock(one.mutex);
    if (one.capture) {
      event->capturedBy = &one;
      event->captured = one.captured;
      return kSuccess;
    }
  }
  event->capturedBy = nullptr;
  uint64_t version = 0;
  {
    const std::lock_guard lock(event->mutex);
    version = ++event->recorded;
    event->ahead.insert(version);
  }
  return one.push([event, version] {
    const std::lock_guard lock(event->mutex);
    event->ahead.erase(version);
    event->reachedAt = std::chrono::steady_clock::now();
    event->changed.notify_all();
  });
}

STAND_IN Result cuEventRecordWithFlags(Event event, Stream stream, unsigned flags) {
  StreamTag& one = of(stream);
  {
    const std::lock_guard lock(one.mutex);
    if (one.capture && (flags & kEventRecordExternal)) {
      one.capture->graph->nodes.push_back({nullptr, event});
      event->capturedBy = nullptr;
      return kSuccess;
    }
  }
  return cuEventRecord(event, stream);
}

/// Nothing of the graph runs before all its events are ahead.
STAND_IN Result cuGraphLaunch(GraphExec graph, Stream stream) {
  const auto launched = std::make_shared<std::promise<void>>();
  Result result = of(stream).push([launched] { launched->get_future().wait(); });
  for (const GraphNodeTag& node : graph->nodes) {
    if (result != kSuccess) break;
    result = node.external ? cuEventRecord(node.external, stream) : of(stream).push(node.task);
  }
  launched->set_value();
  return result;
}

STAND_IN Result cuEventQuery(Event event) {
  if (event->capturedBy) {
    unsafeCall();
    return kCapturedEvent;
  }
  if (const Result result = unsafeCall()) return result;
  const std::shared_lock enters(driverMutex);
  const std::lock_guard lock(event->mutex);
  return event->ahead.count(event->recorded) == 0 ? kSuccess : kNotReady;
}

STAND_IN Result cuEventElapsedTime(float* milliseconds, Event start, Event end) {
  if (const Result result = unsafeCall()) return result;
  const std::scoped_lock lock(start->mutex, end->mutex);
  for (const Event event : {start, end}) {
    if (!event->isTimed || event->recorded == 0) return 400;
    if (event->ahead.count(event->recorded) != 0) return kNotReady;
  }
  *milliseconds =
      std::chrono::duration<float, std::milli>(end->reachedAt - start->reachedAt).count();
  return kSuccess;
}

STAND_IN Result cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  StreamTag& one = of(stream);
  StreamTag* const by = event->capturedBy;
  std::shared_ptr<Capture> theirs;
  if (by != nullptr && by != &one) {
    const std::lock_guard lock(by->mutex);
    theirs = by->capture;
    if (theirs) by->waitedUpTo = std::max(by->waitedUpTo, event->captured);
  }
  {
    const std::lock_guard lock(one.mutex);
    if (theirs && !one.capture) {
      one.capture = theirs;
      one.captured = one.waitedUpTo = 0;
      theirs->joined.push_back(&one);
    }
    if (one.capture) {
      if (by == &one || one.capture == theirs) return kSuccess;
      one.capture->status = CaptureStatus::Invalidated;
      return kCaptureIsolation;
    }
  }
  uint64_t version = 0;
  {
    const std::lock_guard lock(event->mutex);
    version = event->recorded;
  }
  return one.push([event, version] {
    std::unique_lock lock(event->mutex);
    event->changed.wait(lock, [&] { return event->ahead.count(version) == 0; });
  });
}

// Memory.

namespace {

struct Chunk {
  int fd;
  size_t bytes;
  bool isOthers = false;
  int uses = 1;  ///< who has the handle, and mappings
};

struct MappedChunk {
  size_t bytes;
  MemoryHandle handle;
  uint64_t id;
};
std::map<DevicePtr, MappedChunk> mappedChunks;  ///< guarded by allocationsMutex, as all uses are

Chunk& chunkOf(MemoryHandle handle) { return *reinterpret_cast<Chunk*>(handle); }

void letGo(MemoryHandle handle) {
  if (--chunkOf(handle).uses != 0) return;
  close(chunkOf(handle).fd);
  delete &chunkOf(handle);
}

/// The one of `ranges`, by their addresses, that holds this one; else their end.
template <class Ranges>
auto holderOf(Ranges& ranges, DevicePtr address) {
  auto found = ranges.upper_bound(address);
  if (found == ranges.begin()) return ranges.end();
  --found;
  return address < found->first + found->second.bytes ? found : ranges.end();
}

}  // namespace

STAND_IN Result cuDeviceGetAttribute(int* value, DeviceAttribute which, Device device) {
  switch (which) {
    case DeviceAttribute::PciBusId: {
      const char* first = std::getenv("STAND_IN_GPU");
      *value = (device + (first ? std::atoi(first) : 0)) % kGpus;
      return kSuccess;
    }
    case DeviceAttribute::MultiprocessorCount:
      *value = 4;  // so many blocks at most
      return kSuccess;
    case DeviceAttribute::ComputeCapabilityMajor:
      *value = 9;
      return kSuccess;
    case DeviceAttribute::GpuDirectRdma:
    case DeviceAttribute::DmaBuf: {
      const char* said = std::getenv("STAND_IN_GPU_DIRECT");
      *value = said == nullptr || std::strcmp(said, "0") != 0;
      return kSuccess;
    }
    case DeviceAttribute::GpuDirectRdmaFlushOptions:
      *value = kFlushByHost;
      return kSuccess;
    case DeviceAttribute::GpuDirectRdmaWritesOrdering: {
      const char* said = std::getenv("STAND_IN_GPU_DIRECT");
      *value = said != nullptr && std::strcmp(said, "ordered") == 0 ? kOrderedForOwner : 0;
      return kSuccess;
    }
    default:
      *value = 0;
      return kSuccess;
  }
}

STAND_IN Result cuMemGetAllocationGranularity(size_t* bytes, const MemoryProperties*, int) {
  *bytes = 4096;
  return kSuccess;
}

namespace {
std::atomic<unsigned> memoryMade{0};
}  // namespace

STAND_IN Result cuMemCreate(MemoryHandle* handle, size_t bytes, const MemoryProperties*,
                            unsigned long long) {
  ++memoryMade;
  const int fd = memfd_create("stand-in", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) return 2;
  *handle = reinterpret_cast<MemoryHandle>(new Chunk{fd, bytes});
  return kSuccess;
}

STAND_IN Result cuMemRelease(MemoryHandle handle) {
  const std::lock_guard lock(allocationsMutex);
  letGo(handle);
  return kSuccess;
}

STAND_IN Result cuMemRetainAllocationHandle(MemoryHandle* handle, void* address) {
  const std::lock_guard lock(allocationsMutex);
  const auto found = holderOf(mappedChunks, reinterpret_cast<DevicePtr>(address));
  if (found == mappedChunks.end()) return kInvalidValue;
  *handle = found->second.handle;
  ++chunkOf(*handle).uses;
  return kSuccess;
}

STAND_IN Result cuMemExportToShareableHandle(void* shareable, MemoryHandle handle, int,
                                             unsigned long long) {
  *static_cast<int*>(shareable) = dup(chunkOf(handle).fd);
  return kSuccess;
}

/// What STAND_IN_PEERS says of GPUs that do not reach each other: "refused", or "lost", where the
/// driver grants what then does not work.
bool peersAre(const char* state) {
  const char* said = std::getenv("STAND_IN_PEERS");
  return said != nullptr && std::strcmp(said, state) == 0;
}

STAND_IN Result cuMemImportFromShareableHandle(MemoryHandle* handle, void* shareable, int) {
  if (peersAre("refused")) return kPeerAccessUnsupported;
  const int fd = dup(static_cast<int>(reinterpret_cast<intptr_t>(shareable)));
  struct stat status {};
  if (fd < 0 || fstat(fd, &status) != 0) return kInvalidValue;
  *handle =
      reinterpret_cast<MemoryHandle>(new Chunk{fd, static_cast<size_t>(status.st_size), true});
  return kSuccess;
}

STAND_IN Result cuMemAddressReserve(DevicePtr* address, size_t bytes, size_t, DevicePtr,
                                    unsigned long long) {
  void* place = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *address = reinterpret_cast<DevicePtr>(place);
  return place == MAP_FAILED ? 2 : kSuccess;
}

STAND_IN Result cuMemAddressFree(DevicePtr address, size_t bytes) {
  return munmap(pointerTo(address), bytes) == 0 ? kSuccess : kInvalidValue;
}

STAND_IN Result cuMemMap(DevicePtr address, size_t bytes, size_t offset, MemoryHandle handle,
                         unsigned long long) {
  if (offset + bytes > chunkOf(handle).bytes) return kInvalidValue;
  const int kind = chunkOf(handle).isOthers && peersAre("lost") ? MAP_PRIVATE : MAP_SHARED;
  void* place = mmap(pointerTo(address), bytes, PROT_READ | PROT_WRITE, kind | MAP_FIXED,
                     chunkOf(handle).fd, static_cast<off_t>(offset));
  if (place == MAP_FAILED) return 2;
  const std::lock_guard lock(allocationsMutex);
  mappedChunks[address] = {bytes, handle, ++allocationIds};
  ++chunkOf(handle).uses;
  return kSuccess;
}

STAND_IN Result cuMemUnmap(DevicePtr address, size_t bytes) {
  {
    const std::lock_guard lock(allocationsMutex);
    const auto found = mappedChunks.find(address);
    if (found == mappedChunks.end()) return kInvalidValue;
    letGo(found->second.handle);
    mappedChunks.erase(found);
  }
  void* place =
      mmap(pointerTo(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  return place == MAP_FAILED ? 2 : kSuccess;
}

STAND_IN Result cuMemSetAccess(DevicePtr, size_t, const MemoryAccess*, size_t) { return kSuccess; }

STAND_IN Result cuMemHostRegister_v2(void*, size_t, unsigned) { return kSuccess; }
STAND_IN Result cuMemHostUnregister(void*) {
  if (const Result result = unsafeCall()) return result;
  const Freeing freeing;
  return kSuccess;
}

STAND_IN Result cuMemHostGetDevicePointer_v2(DevicePtr* device, void* host, unsigned) {
  *device = reinterpret_cast<DevicePtr>(host);
  return kSuccess;
}

STAND_IN Result cuMemsetD32Async(DevicePtr to, unsigned value, size_t words, Stream stream) {
  return of(stream).push([=] { std::fill_n(static_cast<unsigned*>(pointerTo(to)), words, value); });
}

STAND_IN Result cuMemcpyDtoHAsync_v2(void* to, DevicePtr from, size_t bytes, Stream stream) {
  return of(stream).push([=] { std::memcpy(to, pointerTo(from), bytes); });
}

STAND_IN Result cuMemcpyHtoDAsync_v2(DevicePtr to, const void* from, size_t bytes, Stream stream) {
  // The driver, too, has read pageable memory when it returns.
  std::vector<char> content(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
  return of(stream).push(
      [to, content] { std::memcpy(pointerTo(to), content.data(), content.size()); });
}

// Kernels.

}  // namespace ctran::gpu

struct ctran::gpu::FunctionTag {
  void (*body)(const void* const* parameters, const ctran::device::Block& block);
  size_t argumentBytes;
};

namespace ctran::gpu {

namespace {
std::atomic<unsigned> modulesLoaded{0};
}  // namespace

/// For tests: how many modules have been loaded, and pieces of memory made, so far.
STAND_IN unsigned standInModulesLoaded() { return modulesLoaded.load(); }
STAND_IN unsigned standInMemoryMade() { return memoryMade.load(); }

STAND_IN Result cuModuleLoadData(Module* module, const void* image) {
  ++modulesLoaded;
  const auto& header = *static_cast<const Elf64_Ehdr*>(image);
  const size_t bytes = header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
  const int fd = memfd_create("stand-in-module", MFD_CLOEXEC);
  if (fd < 0 || write(fd, image, bytes) != static_cast<ssize_t>(bytes)) return 2;
  // Stays open: a later module must not get the same name.
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  *module = reinterpret_cast<Module>(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  return *module ? kSuccess : 200;
}

STAND_IN Result cuModuleGetFunction(Function* function, Module module, const char* name) {
  void* body = dlsym(module, name);
  void* bytes = dlsym(module, (std::string(name) + "Bytes").c_str());
  if (!body || !bytes) return 500;
  *function = new FunctionTag{reinterpret_cast<decltype(FunctionTag::body)>(body),
                              *static_cast<unsigned long long*>(bytes)};
  return kSuccess;
}

namespace {
std::atomic<unsigned> lastBlocks{0}, lastThreads{0};
}  // namespace

/// For tests: the shape of the last launch, as it was asked for.
STAND_IN unsigned standInLastBlocks() { return lastBlocks.load(); }
STAND_IN unsigned standInLastThreads() { return lastThreads.load(); }

STAND_IN Result cuLaunchKernel(Function function, unsigned gridX, unsigned, unsigned,
                               unsigned threads, unsigned rows, unsigned, unsigned, Stream stream,
                               void** parameters, void**) {
  lastBlocks = gridX;
  lastThreads = threads;
  const char* first = static_cast<const char*>(parameters[0]);
  const std::vector<char> arguments(first, first + function->argumentBytes);
  return of(stream).push([=] {
    const void* copied = arguments.data();
    std::vector<std::thread> blocks;
    for (unsigned index = 0; index < rows * gridX; ++index) {
      blocks.emplace_back([&, index] {
        device::Guard guard{};
        device::Barrier barrier(1);
        function->body(&copied, {0, 1, index, rows * gridX, &guard, &barrier});
      });
    }
    for (std::thread& block : blocks) block.join();
  });
}

STAND_IN Result cuMemcpyAsync(DevicePtr to, DevicePtr from, size_t bytes, Stream stream) {
  return of(stream).push(
      [=] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes); });
}

STAND_IN Result cuMemHostAlloc(void** address, size_t bytes, unsigned) {
  if (const Result result = unsafeCall()) return result;
  *address = std::calloc(1, bytes);
  return *address ? kSuccess : kOutOfMemory;
}

STAND_IN Result cuMemFreeHost(void* address) {
  if (const Result result = unsafeCall()) return result;
  const Freeing freeing;
  std::free(address);
  return kSuccess;
}

// Device memory: files that processes share, /proc/PID/fd/N of whoever made them.

STAND_IN Result cuMemAlloc_v2(DevicePtr* address, size_t bytes) {
  const int fd = memfd_create("stand-in", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) return kOutOfMemory;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return kOutOfMemory;
  *address = reinterpret_cast<DevicePtr>(data);
  const std::lock_guard lock(allocationsMutex);
  allocations[*address] = {bytes, fd, ++allocationIds};
  return kSuccess;
}

STAND_IN Result cuMemFree_v2(DevicePtr address) {
  if (const Result result = unsafeCall()) return result;
  const Freeing freeing;
  const std::lock_guard lock(allocationsMutex);
  const auto found = allocations.find(address);
  if (found == allocations.end()) return kInvalidValue;
  munmap(reinterpret_cast<void*>(address), found->second.bytes);
  close(found->second.fd);
  allocations.erase(found);
  return kSuccess;
}

/// A dma-buf is the file of the memory: it begins where that does. STAND_IN_DMABUF=0: a driver that
/// has none.
STAND_IN Result cuMemGetHandleForAddressRange(void* handle, DevicePtr address, size_t, int type,
                                              unsigned long long) {
  const char* said = std::getenv("STAND_IN_DMABUF");
  const std::lock_guard lock(allocationsMutex);
  const auto found = allocations.find(address);
  if (found == allocations.end() || type != kAddressRangeDmaBufFd) return kInvalidValue;
  if (said != nullptr && std::strcmp(said, "0") == 0) return kNotSupported;
  *static_cast<int*>(handle) = dup(found->second.fd);
  return kSuccess;
}

namespace {
std::atomic<unsigned> rdmaFlushes{0};
}  // namespace

/// For tests: how often remote writes have been flushed.
STAND_IN unsigned standInRdmaFlushes() { return rdmaFlushes.load(); }

STAND_IN Result cuFlushGPUDirectRDMAWrites(int target, int scope) {
  if (!currentContext) return kInvalidContext;
  if (target != kFlushCurrentContext || scope != kFlushToOwner) return kInvalidValue;
  ++rdmaFlushes;
  return kSuccess;
}

STAND_IN Result cuMemGetAddressRange_v2(DevicePtr* base, size_t* bytes, DevicePtr address) {
  const std::lock_guard lock(allocationsMutex);
  const auto give = [&](const auto& range) {
    *base = range.first;
    *bytes = range.second.bytes;
    return kSuccess;
  };
  if (auto found = holderOf(allocations, address); found != allocations.end()) return give(*found);
  if (auto found = holderOf(mappedChunks, address); found != mappedChunks.end()) {
    return give(*found);
  }
  const auto ofOthers = opened.find(address);
  if (ofOthers == opened.end()) return kInvalidValue;
  *base = address;
  *bytes = ofOthers->second.bytes;
  return kSuccess;
}

STAND_IN Result cuPointerGetAttribute(void* value, PointerAttribute which, DevicePtr address) {
  const std::lock_guard lock(allocationsMutex);
  const auto give = [&](uint64_t id) {
    if (which == PointerAttribute::MemoryType) {
      *static_cast<unsigned*>(value) = kMemoryOfDevice;
    } else if (which == PointerAttribute::BufferId) {
      *static_cast<uint64_t*>(value) = id;
    } else {
      *static_cast<int*>(value) = 0;
    }
    return kSuccess;
  };
  const auto allocation = holderOf(allocations, address);
  if (allocation != allocations.end()) return give(allocation->second.id);
  const auto chunk = holderOf(mappedChunks, address);
  return chunk != mappedChunks.end() ? give(chunk->second.id) : kInvalidValue;
}

STAND_IN Result cuIpcGetMemHandle(IpcHandle* handle, DevicePtr address) {
  const std::lock_guard lock(allocationsMutex);
  const auto found = allocations.find(address);
  if (found == allocations.end()) return kInvalidValue;
  std::snprintf(handle->bytes, sizeof(handle->bytes), "/proc/%d/fd/%d %zu", getpid(),
                found->second.fd, found->second.bytes);
  return kSuccess;
}

STAND_IN Result cuIpcOpenMemHandle_v2(DevicePtr* address, IpcHandle handle, unsigned) {
  std::string path = handle.bytes;
  const size_t space = path.find(' ');
  const size_t bytes = std::stoull(path.substr(space));
  path.resize(space);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat status {};
  if (fd < 0 || fstat(fd, &status) != 0) return kInvalidValue;
  const std::lock_guard lock(allocationsMutex);
  for (auto& [at, one] : opened) {
    if (one.name != path) continue;
    close(fd);
    if (one.file != status.st_ino) return kAlreadyMapped;
    ++one.times;
    *address = at;
    return kSuccess;
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (data == MAP_FAILED) return kOutOfMemory;
  *address = reinterpret_cast<DevicePtr>(data);
  opened[*address] = {path, status.st_ino, bytes, 1};
  return kSuccess;
}

STAND_IN Result cuIpcCloseMemHandle(DevicePtr address) {
  if (const Result result = unsafeCall()) return result;
  const Freeing freeing;
  const std::lock_guard lock(allocationsMutex);
  const auto found = opened.find(address);
  if (found == opened.end()) return kInvalidValue;
  if (--found->second.times > 0) return kSuccess;
  munmap(reinterpret_cast<void*>(address), found->second.bytes);
  opened.erase(found);
  return kSuccess;
}

STAND_IN Result cuStreamWriteValue32_v2(Stream stream, DevicePtr address, uint32_t value,
                                        unsigned) {
  return of(stream).push(
      [=] { std::atomic_ref(*reinterpret_cast<uint32_t*>(address)).store(value); });
}

STAND_IN Result cuStreamWaitValue32_v2(Stream stream, DevicePtr address, uint32_t value,
                                       unsigned flags) {
  if (flags != kWaitEqual) return kInvalidValue;  // the one condition that is needed
  return of(stream).push([=] {
    const std::atomic_ref word(*reinterpret_cast<uint32_t*>(address));
    while (word.load() != value) std::this_thread::sleep_for(std::chrono::microseconds(20));
  });
}

STAND_IN Result cuLaunchHostFunc(Stream stream, void (*function)(void*), void* argument) {
  return of(stream).push([=] { function(argument); });
}

// HIP's names for the same, which AMD's runtime has.

#define SAME_AS(function) extern "C" __attribute__((visibility("default"), alias(#function)))

SAME_AS(cuGetErrorString) decltype(cuGetErrorString) hipDrvGetErrorString;
SAME_AS(cuGetErrorName) decltype(cuGetErrorName) hipDrvGetErrorName;
SAME_AS(cuCtxGetStreamPriorityRange)
decltype(cuCtxGetStreamPriorityRange) hipDeviceGetStreamPriorityRange;
SAME_AS(cuStreamCreateWithPriority)
decltype(cuStreamCreateWithPriority) hipStreamCreateWithPriority;
SAME_AS(cuStreamDestroy_v2) decltype(cuStreamDestroy_v2) hipStreamDestroy;
SAME_AS(cuStreamWaitEvent) decltype(cuStreamWaitEvent) hipStreamWaitEvent;
SAME_AS(cuStreamIsCapturing) decltype(cuStreamIsCapturing) hipStreamIsCapturing;
SAME_AS(cuStreamGetCaptureInfo_v2) decltype(cuStreamGetCaptureInfo_v2) hipStreamGetCaptureInfo_v2;
SAME_AS(cuThreadExchangeStreamCaptureMode)
decltype(cuThreadExchangeStreamCaptureMode) hipThreadExchangeStreamCaptureMode;
SAME_AS(cuEventCreate) decltype(cuEventCreate) hipEventCreateWithFlags;
SAME_AS(cuEventDestroy_v2) decltype(cuEventDestroy_v2) hipEventDestroy;
SAME_AS(cuEventRecord) decltype(cuEventRecord) hipEventRecord;
SAME_AS(cuEventQuery) decltype(cuEventQuery) hipEventQuery;
SAME_AS(cuEventElapsedTime) decltype(cuEventElapsedTime) hipEventElapsedTime;
SAME_AS(cuMemcpyAsync) decltype(cuMemcpyAsync) hipMemcpyDtoDAsync;
SAME_AS(cuMemHostAlloc) decltype(cuMemHostAlloc) hipHostMalloc;
SAME_AS(cuMemFreeHost) decltype(cuMemFreeHost) hipHostFree;
SAME_AS(cuMemHostGetDevicePointer_v2)
decltype(cuMemHostGetDevicePointer_v2) hipHostGetDevicePointer;
SAME_AS(cuUserObjectCreate) decltype(cuUserObjectCreate) hipUserObjectCreate;
SAME_AS(cuGraphRetainUserObject) decltype(cuGraphRetainUserObject) hipGraphRetainUserObject;

/// There the device has a context without asking.
STAND_IN Result hipGetDevice(int* device) {
  cuDevicePrimaryCtxRetain(&currentContext, 0);
  *device = 0;
  return kSuccess;
}

STAND_IN Result hipSetDevice(int device) { return device == 0 ? kSuccess : kInvalidValue; }

// What torch does for a real device: each thread has a current stream.

STAND_IN Stream ctranStandInCurrentStream() { return hostStream; }

STAND_IN void ctranStandInSetCurrentStream(Stream stream) { hostStream = stream; }

}  // namespace ctran::gpu
