#include "ctran/gpu/runtime.h"

#include <dlfcn.h>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/gpu/libraries.h"

namespace ctran::gpu {

namespace {

const ConfigString kHipLibrary{"CTRAN_HIP_LIBRARY", "",
                               "Path of AMD's HIP runtime, instead of libamdhip64.so."};

Runtime loadCuda() {
  const Driver& driver = Driver::get();
  Runtime runtime;
#define CTRAN_TAKE(name, ...) runtime.name = driver.name;
  CTRAN_RUNTIME_FUNCTIONS(CTRAN_TAKE)
#undef CTRAN_TAKE
  runtime.streamWriteValue32 = driver.streamWriteValue32;
  runtime.eventRecordWithFlags = driver.eventRecordWithFlags;
  return runtime;
}

void* openHip() {
  if (const std::string path = kHipLibrary.get(); !path.empty()) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    throw Error(ErrorKind::Unsupported, std::string("CTRAN_HIP_LIBRARY: ") + dlerror());
  }
  std::string reasons;
  if (void* library = openLibrary({"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6"},
                                  Home::Rocm, reasons)) {
    return library;
  }
  throw Error(ErrorKind::Unsupported, "AMD's HIP runtime could not be loaded:" + reasons, {}, {},
              "install ROCm, whose folder ROCM_HOME may name, or a torch that carries it");
}

Runtime loadHip() {
  void* library = openHip();
  Runtime runtime;
  runtime.platform = Platform::Hip;
  std::string missing;
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
    if (!function) missing += std::string(missing.empty() ? "" : ", ") + symbol;
  };
#define CTRAN_FIND(name, hip) find(runtime.name, hip);
  CTRAN_RUNTIME_FUNCTIONS(CTRAN_FIND)
#undef CTRAN_FIND
  find(runtime.hipGetDevice, "hipGetDevice");
  find(runtime.hipSetDevice, "hipSetDevice");
  if (!missing.empty()) {
    throw Error(ErrorKind::Unsupported, "AMD's HIP runtime lacks " + missing, {}, {},
                "install ROCm 6.2 or later");
  }
  return runtime;
}

std::pair<uint64_t, Graph> captureInfo(const Runtime& runtime, Stream stream) {
  CaptureStatus status = CaptureStatus::None;
  uint64_t id = 0;
  Graph graph = nullptr;
  const GraphNode* dependencies = nullptr;
  size_t count = 0;
  runtime.check(runtime.streamGetCaptureInfo(stream, &status, &id, &graph, &dependencies, &count),
                "asking for the graph that a stream captures");
  return {id, graph};
}

}  // namespace

const Runtime& Runtime::of(Platform platform) {
  if (platform == Platform::Cuda) {
    static const Runtime cuda = loadCuda();
    return cuda;
  }
  static const Runtime hip = loadHip();
  return hip;
}

void Runtime::check(Result result, const char* what) const {
  if (result == kSuccess) [[likely]]
    return;
  const char* name = nullptr;
  const char* text = nullptr;
  getErrorName(result, &name);
  getErrorString(result, &text);
  throw Error(ErrorKind::System, std::string(what) + ": " + (name ? name : "GPU error") + " (" +
                                     std::to_string(result) + ")" +
                                     (text ? std::string(": ") + text : ""));
}

bool Runtime::isReached(Event event) const {
  const RelaxedCapture relaxed(*this);
  const Result result = eventQuery(event);
  if (result == kNotReady) return false;
  check(result, "querying an event");
  return true;
}

bool Runtime::isCapturing(Stream stream) const {
  CaptureStatus status = CaptureStatus::None;
  check(streamIsCapturing(stream, &status), "asking whether a stream is capturing");
  return status != CaptureStatus::None;
}

uint64_t Runtime::captureOf(Stream stream) const { return captureInfo(*this, stream).first; }

ActiveDevice::ActiveDevice(const Runtime& runtime, int device) : runtime_(runtime) {
  if (runtime.platform == Platform::Cuda) {
    cuda_.emplace(device);
    return;
  }
  runtime.check(runtime.hipGetDevice(&previous_), "hipGetDevice");
  if (previous_ == device) {
    previous_ = -1;
  } else {
    runtime.check(runtime.hipSetDevice(device), "hipSetDevice");
  }
}

ActiveDevice::~ActiveDevice() {
  if (previous_ >= 0) runtime_.hipSetDevice(previous_);
}

OwnStream::OwnStream(const Runtime& runtime, int device, bool highPriority)
    : runtime_(runtime), device_(device) {
  const ActiveDevice active(runtime, device);
  int least = 0;
  int greatest = 0;
  runtime.check(runtime.ctxGetStreamPriorityRange(&least, &greatest), "asking for priorities");
  runtime.check(
      runtime.streamCreateWithPriority(&stream_, kStreamNonBlocking, highPriority ? greatest : 0),
      "creating a stream");
}

OwnStream::~OwnStream() {
  try {
    const ActiveDevice active(runtime_, device_);
    runtime_.streamDestroy(stream_);
  } catch (const Error&) {  // the driver has gone before us: so has the stream
  }
}

EventPool::EventPool(const Runtime& runtime, int device, size_t mostIdle, Timing timing)
    : runtime_(runtime),
      device_(device),
      mostIdle_(mostIdle),
      flags_(timing == Timing::On ? 0 : kEventDisableTiming) {}

EventPool::~EventPool() {
  for (const Event event : idle_) runtime_.eventDestroy(event);
}

Event EventPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      const Event event = idle_.back();
      idle_.pop_back();
      return event;
    }
  }
  const ActiveDevice active(runtime_, device_);
  const RelaxedCapture relaxed(runtime_);
  Event event = nullptr;
  runtime_.check(runtime_.eventCreate(&event, flags_), "creating an event");
  return event;
}

void EventPool::give(Event event) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (idle_.size() < mostIdle_) {
      idle_.push_back(event);
      return;
    }
  }
  runtime_.eventDestroy(event);
}

void keepWithGraph(const Runtime& runtime, Stream stream, void* value, void (*destroy)(void*)) {
  const Graph graph = captureInfo(runtime, stream).second;
  UserObject object = nullptr;
  runtime.check(runtime.userObjectCreate(&object, value, destroy, 1, kUserObjectNoSync),
                "making an object that a graph keeps");
  // The graph takes our reference over; if it does not, the object leaks, and `value` with it.
  runtime.check(runtime.graphRetainUserObject(graph, object, 1, kGraphMoveUserObject),
                "giving a graph what it has to keep");
}

}  // namespace ctran::gpu
