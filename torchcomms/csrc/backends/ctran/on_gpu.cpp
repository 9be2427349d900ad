// CtranBackend on GPUs: each operation becomes work on a stream.

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "ctran/base/error.h"
#include "ctran/engine/gpu_domain.h"
#include "ctran/memory/device_segment.h"
#include "torchcomms/csrc/backends/ctran/backend.hpp"
#include "torchcomms/csrc/backends/ctran/blocks.hpp"
#include "torchcomms/csrc/backends/ctran/describe.hpp"
#include "torchcomms/csrc/backends/ctran/gpu_window.hpp"
#include "torchcomms/csrc/backends/ctran/place.hpp"
#include "torchcomms/csrc/backends/ctran/rows.hpp"
#include "torchcomms/csrc/backends/ctran/work.hpp"
#include "torchcomms/csrc/backends/nccl/hints.hpp"
#include "torchcomms/csrc/backends/stream/work.hpp"
#include "torchcomms/csrc/current_stream.hpp"
#include "torchcomms/csrc/held.hpp"

namespace torch::comms {

namespace {

using ctran::Collective;
using ctran::CollectiveKind;

/// Returns what serves GPUs that do not reach each other's memory: the host's memory, or nothing if
/// the hint ctran::through_host is 0.
ctran::GpuFallback fallbackOf(const Hints& hints) {
  using Fallback = ctran::GpuFallback;
  const auto hint = hints.find("ctran::through_host");
  return hint != hints.end() && hint->second == "0" ? Fallback::None : Fallback::HostMemory;
}

/// What a handle refers to. Works and graphs hold only the copy.
struct Prepared {
  explicit Prepared(std::shared_ptr<const ctran::PersistentCopy> c) : copy(std::move(c)) {}
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  ~Prepared() { copy->free(); }

  const std::shared_ptr<const ctran::PersistentCopy> copy;
};

class OnGpus final : public CtranPlace {
 public:
  explicit OnGpus(CtranBackend& backend) : backend_(backend) {}

  ctran::ReduceOp reduceOpOf(const ReduceOp& op, at::Tensor& factor) const override;
  WorkPtr execute(const Call& call, Collective&& collective, Hold hold) override;
  WorkPtr exchangeRows(const Call& call, Collective&& collective) override;
  WorkPtr receiveFromAny(const Call&, Collective&&) override {
    backend_.unsupported("recv from any source on a GPU");
  }
  WorkPtr exchangeMessages(const Call& call) override;
  WorkPtr reduceScatterQuantized(const Call& call, Collective&& collective) override;

  std::shared_ptr<TorchCommWindow> newWindow() override;
  std::shared_ptr<void> registerMemory(const at::Tensor& tensor) override;
  std::shared_ptr<void> prepare(OpName op, const at::Tensor& output,
                                std::chrono::milliseconds timeout) override;

  void abort(bool finalized) override {
    backend_.lookAtEngine([&](ctran::Communicator& engine) {
      ctran::GpuQueue& gpu = engine.onGpus();
      if (finalized && !gpu.hasGraphs()) return;  // the others go on without this rank
      gpu.abort();
    });
  }

 private:
  /// Waits for all operations issued before.
  void drain();
  ctran::GpuQueue& gpu() const { return backend_.engine().onGpus(); }
  ctran::gpu::Stream currentStream() const { return stream::currentStream(backend_.getDevice()); }
  ctran::EnqueueOptions optionsOf(const Call& call,
                                  std::function<std::shared_ptr<void>()> hold) const {
    return {.name = toString(call.op),
            .timeout = backend_.timeoutOf(call.options),
            .aside = call.async,
            .highPriority = nccl::wantsHighPriority(call.options.hints),
            .keepAlive = std::move(hold)};
  }
  WorkPtr workOf(std::shared_ptr<ctran::StreamOperation> operation) const {
    return stream::workOf(std::move(operation), backend_.getDevice());
  }

  CtranBackend& backend_;
};

ctran::ReduceOp OnGpus::reduceOpOf(const ReduceOp& op, at::Tensor& factor) const {
  const at::Tensor* given =
      op.type() == RedOpType::PREMUL_SUM ? std::get_if<at::Tensor>(&op.factor()) : nullptr;
  if (!given) return engineOp(op);
  // It stays on the device: nobody waits for it.
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  factor = given->to(backend_.getDevice(), at::kDouble);
  ctran::ReduceOp made{ctran::ReduceKind::PremulSum};
  made.factorAt = factor.const_data_ptr<double>();
  return made;
}

TorchCommBackend::WorkPtr OnGpus::execute(const Call& call, Collective&& collective, Hold hold) {
  if (call.prepared) {
    collective.persistent = static_cast<const Prepared*>(call.prepared->get())->copy;
  }
  using Kept = std::pair<std::shared_ptr<void>, std::shared_ptr<const ctran::PersistentCopy>>;
  const auto keep = [&]() -> std::shared_ptr<void> {
    if (!collective.persistent) return hold();
    return std::make_shared<Kept>(hold(), collective.persistent);
  };
  EngineWaitHooks hooks;
  return workOf(
      gpu().enqueue(collective, currentStream(), optionsOf(call, std::ref(keep)), &hooks));
}

TorchCommBackend::WorkPtr OnGpus::exchangeRows(const Call& call, Collective&& collective) {
  if (!HostRows::areFor(*call.rows) && !gpu().spansDomains()) {
    return execute(call, std::move(collective),
                   [&]() -> std::shared_ptr<void> { return held(*call.rows); });
  }
  gpu().throwIfBroken();
  if (gpu().runtime().isCapturing(currentStream())) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       std::string(toString(call.op)) +
                           " of tensors of a GPU goes through the host's memory and cannot be "
                           "captured",
                       {}, {}, "put the rows in the order of the ranks, for all_to_all_v_dynamic");
  }
  drain();  // an operation issued before it may write the numbers
  HostRows rows(*call.rows);
  Collective onHost = collectiveOf(rows.call());
  onHost.hints = std::move(collective.hints);
  EngineWaitHooks hooks(*backend_.monitor());
  visibly(*backend_.monitor(),
          [&] { backend_.engine().run(onHost, call.options.timeout, &hooks); });
  rows.bringBack();
  return TorchWorkCompleted::shared();
}

TorchCommBackend::WorkPtr OnGpus::exchangeMessages(const Call& call) {
  std::vector<Collective> messages;
  std::vector<at::Tensor> tensors;
  for (const P2POp& op : call.batch) {
    messages.push_back(collectiveOf(op));
    tensors.push_back(op.tensor);
  }
  const auto hold = [&]() -> std::shared_ptr<void> { return held(tensors); };
  return workOf(gpu().enqueueMessages(messages, currentStream(), optionsOf(call, std::ref(hold))));
}

TorchCommBackend::WorkPtr OnGpus::reduceScatterQuantized(const Call& call,
                                                         Collective&& collective) {
  const at::Tensor& seed = *call.seed;
  ctran::Quantization quantization;
  if (seed.device().type() == backend_.getDevice().type()) {  // read when the kernel runs
    quantization.seedAt = reinterpret_cast<const uint64_t*>(readable(seed));
  } else {
    quantization.seed = static_cast<uint64_t>(seed.item<int64_t>());
  }
  const auto hold = [&]() -> std::shared_ptr<void> { return held(tensorsOf(call, seed)); };
  return workOf(gpu().enqueueQuantized(collective, quantization, currentStream(),
                                       optionsOf(call, std::ref(hold))));
}

std::shared_ptr<TorchCommWindow> OnGpus::newWindow() {
  if (gpu().spansDomains()) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       "GPU tensors of several hosts cannot be windows yet", {}, "new_window",
                       "make windows in communicators of one host each, which split() makes; or of "
                       "tensors of the CPU");
  }
  return makeGpuWindow(backend_);
}

std::shared_ptr<void> OnGpus::registerMemory(const at::Tensor& tensor) {
  const void* address = tensor.const_data_ptr();
  auto adopted = ctran::DeviceSegment::adopt(gpu().device(), address, tensor.nbytes());
  gpu().domain().registerMemory(address, tensor.nbytes());
  return adopted;
}

std::shared_ptr<void> OnGpus::prepare(OpName op, const at::Tensor& output,
                                      std::chrono::milliseconds timeout) {
  if (gpu().spansDomains()) return nullptr;
  gpu().throwIfBroken();
  const ctran::gpu::ActiveDevice active(gpu().runtime(), gpu().device());
  const HostWait wait;
  EngineWaitHooks hooks(*backend_.monitor());
  const auto kind =
      op == OpName::all_gather_single ? CollectiveKind::AllGather : CollectiveKind::AllToAll;
  auto made = visibly(*backend_.monitor(), [&] {
    return gpu().domain().prepare(kind, writable(output), output.nbytes(), timeout, &hooks);
  });
  return made ? std::make_shared<Prepared>(std::move(made)) : nullptr;
}

void OnGpus::drain() {
  EngineWaitHooks hooks;
  gpu().drain(&hooks);
  gpu().throwIfBroken();
}

}  // namespace

std::unique_ptr<CtranPlace> makePlaceOnGpus(CtranBackend& backend) {
  return std::make_unique<OnGpus>(backend);
}

void giveGpus(ctran::Communicator& engine, at::Device device, const CommOptions& options,
              const std::shared_ptr<ErrorMonitor>& monitor) {
  const ctran::GpuOptions gpu{
      .device = device.has_index() ? device.index() : 0,
      .fallback = fallbackOf(options.hints),
      .highPriority = options.is_high_priority_stream || nccl::wantsHighPriority(options.hints),
      .freesInStreamOrder = !device.is_cpu(),
      .observer = monitor};
  EngineWaitHooks hooks(*monitor);
  visibly(*monitor, [&] { engine.useGpu(gpu, &hooks); });
}

}  // namespace torch::comms
