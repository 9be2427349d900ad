// CtranBackend on tensors of the CPU: the engine runs or posts each operation.

#include "torchcomms/csrc/backends/ctran/backend.hpp"
#include "torchcomms/csrc/backends/ctran/describe.hpp"
#include "torchcomms/csrc/backends/ctran/place.hpp"
#include "torchcomms/csrc/backends/ctran/window.hpp"
#include "torchcomms/csrc/backends/ctran/work.hpp"
#include "torchcomms/csrc/combined_work.hpp"
#include "torchcomms/csrc/data_type.hpp"
#include "torchcomms/csrc/held.hpp"
#include "torchcomms/csrc/memory_life.hpp"

namespace torch::comms {

namespace {

using ctran::Collective;

class OnCpu final : public CtranPlace {
 public:
  explicit OnCpu(CtranBackend& backend) : backend_(backend) {}

  ctran::ReduceOp reduceOpOf(const ReduceOp& op, at::Tensor&) const override {
    return engineOp(op);
  }
  WorkPtr execute(const Call& call, Collective&& collective, Hold hold) override;
  WorkPtr exchangeRows(const Call& call, Collective&& collective) override {
    return execute(call, std::move(collective),
                   [&]() -> std::shared_ptr<void> { return held(*call.rows); });
  }
  WorkPtr receiveFromAny(const Call& call, Collective&& collective) override;
  WorkPtr exchangeMessages(const Call& call) override;
  WorkPtr reduceScatterQuantized(const Call&, Collective&&) override {
    backend_.unsupported("reduce_scatter_quantized on the CPU");
  }

  std::shared_ptr<TorchCommWindow> newWindow() override {
    return std::make_shared<CtranWindow>(backend_.shareEngine(), backend_.monitor(),
                                         backend_.getDevice());
  }
  std::shared_ptr<void> registerMemory(const at::Tensor& tensor) override;
  std::shared_ptr<void> prepare(OpName, const at::Tensor&, std::chrono::milliseconds) override {
    return nullptr;
  }

  void abort(bool) override {
    backend_.lookAtEngine([](ctran::Communicator& engine) {
      engine.abort("abort() was called on rank " + std::to_string(engine.rank()));
    });
  }

 private:
  template <typename Ask>
  auto visibly(Ask ask) {
    return torch::comms::visibly(*backend_.monitor(), std::move(ask));
  }

  CtranBackend& backend_;
};

TorchCommBackend::WorkPtr OnCpu::execute(const Call& call, Collective&& collective, Hold hold) {
  ctran::Communicator& engine = backend_.engine();
  if (!call.async) {
    EngineWaitHooks hooks(*backend_.monitor());
    visibly([&] { engine.run(collective, call.options.timeout, &hooks); });
    return TorchWorkCompleted::shared();
  }
  std::shared_ptr<void> held = hold();
  EngineWaitHooks hooks(*backend_.monitor());
  auto work = visibly([&] {
    return engine.post(std::move(collective), call.options.timeout, std::move(held), &hooks);
  });
  return CtranWork::make(call.op, std::move(work), backend_.monitor());
}

TorchCommBackend::WorkPtr OnCpu::receiveFromAny(const Call& call, Collective&& collective) {
  const auto source = std::make_shared<int>(-1);
  collective.root = ctran::kAnyRank;
  collective.source = source.get();
  EngineWaitHooks hooks(*backend_.monitor());
  auto work = visibly([&] {
    auto posted = backend_.engine().post(std::move(collective), call.options.timeout,
                                         held(std::pair(call.outputs[0], source)));
    if (!call.async) ctran::Work::finish({&posted, 1}, &hooks);
    return posted;
  });
  return CtranWork::make(OpName::recv, std::move(work), backend_.monitor(), source);
}

TorchCommBackend::WorkPtr OnCpu::exchangeMessages(const Call& call) {
  std::vector<std::shared_ptr<ctran::Work>> posted;
  posted.reserve(call.batch.size());
  EngineWaitHooks hooks(*backend_.monitor());
  visibly([&] {
    for (const P2POp& op : call.batch) {
      posted.push_back(
          backend_.engine().post(collectiveOf(op), call.options.timeout, held(op.tensor)));
    }
    if (!call.async) ctran::Work::finish(posted, &hooks);
  });
  if (!call.async) return TorchWorkCompleted::shared();
  std::vector<WorkPtr> works;
  for (size_t i = 0; i < posted.size(); ++i) {
    const bool sends = call.batch[i].type == P2POp::Type::SEND;
    works.push_back(CtranWork::make(sends ? OpName::send : OpName::recv, std::move(posted[i]),
                                    backend_.monitor()));
  }
  return CombinedWork::of(std::move(works));
}

std::shared_ptr<void> OnCpu::registerMemory(const at::Tensor& tensor) {
  // resize_() and set_() take the memory away from a tensor.
  const auto kept = std::make_shared<at::Tensor>(tensor.detach());
  auto* const data = static_cast<std::byte*>(const_cast<void*>(tensor.const_data_ptr()));
  const auto isCurrent = [weak = std::weak_ptr(kept), data, life = lifeOfMemory(tensor)] {
    const auto held = weak.lock();
    return held && held->const_data_ptr() == data && !life.expired();
  };
  auto direct = backend_.engine().useDirectly({data, tensor.nbytes()}, isCurrent);
  return std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(
      kept, std::move(direct));
}

}  // namespace

std::unique_ptr<CtranPlace> makePlaceOnCpu(CtranBackend& backend) {
  return std::make_unique<OnCpu>(backend);
}

}  // namespace torch::comms
