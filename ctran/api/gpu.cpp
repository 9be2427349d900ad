#include "ctran/gpu.h"

#include <cstring>
#include <numeric>

#include "ctran/api/convert.h"
#include "ctran/engine/exchange_all.h"
#include "ctran/engine/gpu_communicator.h"
#include "ctran/engine/gpu_domain.h"
#include "ctran/gpu/memory.h"

namespace ctran::api {
namespace {

gpu::Stream engineStream(GpuStream stream) { return static_cast<gpu::Stream>(stream); }

gpu::DevicePtr address(const void* memory) { return reinterpret_cast<gpu::DevicePtr>(memory); }

ctran::EnqueueOptions engineOptions(const EnqueueOptions& options) {
  ctran::EnqueueOptions engine;
  engine.timeout = options.timeout;
  engine.aside = options.aside;
  engine.blocks = options.blocks;
  engine.threads = options.threads;
  if (options.keepAlive) engine.keepAlive = [owner = options.keepAlive] { return owner; };
  return engine;
}

ctran::GpuCommunicatorOptions engineOptions(const GpuOptions& options) {
  ctran::GpuCommunicatorOptions engine;
  engine.device = options.device;
  engine.highPriority = options.highPriority;
  return engine;
}

/// Throws Error(Unsupported) on all ranks if one has not the GPU that it is to use.
void checkGpus(ctran::Communicator& communicator, int device, WaitHooks* hooks) {
  struct Said {
    int device;
    int count;
    char why[200];
  } own{device, 0, ""};
  try {
    own.count = gpuCount();
  } catch (const Error& error) {
    std::strncpy(own.why, error.what(), sizeof own.why - 1);
  }
  const auto all = exchangeAll(communicator, own, {}, hooks);
  for (int r = 0; r < communicator.size(); ++r) {
    const Said& said = all[r];
    if (said.device >= 0 && said.device < said.count) continue;
    throw Error(
        ErrorKind::Unsupported,
        "rank " + std::to_string(r) + " of communicator '" + communicator.name() + "' has no GPU " +
            std::to_string(said.device) + ": " +
            (said.why[0] != 0 ? said.why : "the driver shows it " + std::to_string(said.count)),
        {r}, {}, "pass memory of the CPU, or see nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
}

std::shared_ptr<StreamWork> workOf(std::shared_ptr<StreamOperation> operation) {
  return operation ? std::make_shared<StreamWork>(std::move(operation)) : nullptr;
}

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
std::optional<int> currentGpu() { return gpu::currentDevice(); }
std::optional<int> gpuOf(const void* memory) { return gpu::deviceOf(memory); }
bool isCapturing(GpuStream stream) {
  return gpu::Runtime::of(gpu::Platform::Cuda).isCapturing(engineStream(stream));
}

StreamWork::StreamWork(std::shared_ptr<StreamOperation> engine) : engine_(std::move(engine)) {}
WorkState StreamWork::state() const { return engine_->state(); }
void StreamWork::wait(WaitHooks* hooks) { engine_->wait(hooks); }
void StreamWork::makeWait(GpuStream stream) { engine_->makeWait(engineStream(stream)); }

std::shared_ptr<GpuCommunicator> GpuCommunicator::create(const std::shared_ptr<Communicator>& host,
                                                         const GpuOptions& options,
                                                         WaitHooks* hooks) {
  return std::make_shared<GpuCommunicator>(
      ctran::GpuCommunicator::create(host->engine(), engineOptions(options), hooks));
}

std::shared_ptr<GpuCommunicator> GpuCommunicator::beside(const std::shared_ptr<Communicator>& host,
                                                         const std::string& name,
                                                         const GpuOptions& options,
                                                         WaitHooks* hooks) {
  ctran::Communicator& engine = *host->engine();
  checkGpus(engine, options.device, hooks);
  const gpu::RelaxedCapture relaxed(gpu::Runtime::of(gpu::Platform::Cuda));
  std::vector<int> ranks(engine.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto control = engine.splitPart(ranks, name, {.gpus = true}, hooks);
  engine.addDependent(control);
  return std::make_shared<GpuCommunicator>(
      ctran::GpuCommunicator::create(control, engineOptions(options), hooks));
}

GpuCommunicator::GpuCommunicator(std::shared_ptr<ctran::GpuCommunicator> engine)
    : engine_(std::move(engine)) {}
GpuCommunicator::~GpuCommunicator() = default;

std::shared_ptr<StreamWork> GpuCommunicator::enqueue(const Call& call, GpuStream stream,
                                                     const EnqueueOptions& options,
                                                     WaitHooks* hooks) {
  return workOf(engine_->enqueue(engineCall(call, engine_->control()), engineStream(stream),
                                 engineOptions(options), hooks));
}

std::shared_ptr<StreamWork> GpuCommunicator::enqueueMessages(std::span<const Call> messages,
                                                             GpuStream stream,
                                                             const EnqueueOptions& options) {
  std::vector<Collective> all;
  for (const Call& call : messages) all.push_back(engineCall(call, engine_->control()));
  return workOf(engine_->enqueueMessages(all, engineStream(stream), engineOptions(options)));
}

const std::string& GpuCommunicator::name() const { return engine_->name(); }
int GpuCommunicator::device() const { return engine_->device(); }

std::shared_ptr<const CallHints> GpuCommunicator::prepare(const Hints& hints) const {
  return engine_->control().hintsOfCall(hints);
}

Explanation GpuCommunicator::explain(CollectiveKind kind, size_t bytes, DataType type,
                                     const std::shared_ptr<const CallHints>& hints) const {
  const ctran::Explanation found = engine_->explain(kind, bytes, type, hints.get());
  return {found.algorithm, found.why, found.toJson().print()};
}

void GpuCommunicator::throwIfBroken() const {
  engine_->diagnose();
  engine_->throwIfBroken();
}

bool GpuCommunicator::isAborted() const {
  return engine_->isBroken() || engine_->domain().hasFailed();
}

void GpuCommunicator::setTimeout(std::chrono::nanoseconds timeout) { engine_->setTimeout(timeout); }
void GpuCommunicator::abort(const std::string& reason) { engine_->control().abort(reason); }
void GpuCommunicator::finalize(WaitHooks* hooks) { engine_->finalize(hooks); }

struct OwnGpuStream::State {
  explicit State(int device)
      : device(device), stream(gpu::Runtime::of(gpu::Platform::Cuda), device, false) {}
  const int device;
  const gpu::OwnStream stream;
};

OwnGpuStream::OwnGpuStream(int device) : state_(std::make_unique<State>(device)) {}
OwnGpuStream::~OwnGpuStream() = default;
GpuStream OwnGpuStream::get() const { return state_->stream.get(); }

void OwnGpuStream::copy(void* toDevice, const void* from, size_t bytes) {
  const gpu::ActiveDevice active(gpu::Runtime::of(gpu::Platform::Cuda), state_->device);
  gpu::check(
      gpu::Driver::get().memcpyHtoDAsync(address(toDevice), from, bytes, state_->stream.get()),
      "copying to the device");
}

void OwnGpuStream::synchronize() {
  const gpu::ActiveDevice active(gpu::Runtime::of(gpu::Platform::Cuda), state_->device);
  gpu::check(gpu::Driver::get().streamSynchronize(state_->stream.get()), "waiting for a stream");
}

void OwnGpuStream::read(void* to, const void* fromDevice, size_t bytes) {
  const gpu::ActiveDevice active(gpu::Runtime::of(gpu::Platform::Cuda), state_->device);
  const gpu::Driver& driver = gpu::Driver::get();
  gpu::check(driver.memcpyDtoHAsync(to, address(fromDevice), bytes, state_->stream.get()),
             "copying to the host");
  gpu::check(driver.streamSynchronize(state_->stream.get()), "waiting for a stream");
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

std::shared_ptr<void> allocateOnGpu(int device, size_t bytes) {
  const gpu::ActiveDevice active(gpu::Runtime::of(gpu::Platform::Cuda), device);
  const auto memory =
      std::make_shared<gpu::DeviceMemory>(gpu::DeviceMemory::allocate(device, bytes));
  return {memory, reinterpret_cast<void*>(memory->address())};
}

}  // namespace ctran::api
