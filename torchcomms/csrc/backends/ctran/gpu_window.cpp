#include "torchcomms/csrc/backends/ctran/gpu_window.hpp"

#include <cstring>

#include "torchcomms/csrc/backends/ctran/work.hpp"
#include "torchcomms/csrc/backends/stream/current_stream.hpp"
#include "torchcomms/csrc/backends/stream/work.hpp"

namespace torch::comms {

namespace {

class Host final : public gpu::WindowHost {
 public:
  explicit Host(CtranBackend& backend) : backend_(backend), gpu_(backend.gpu()) {}

  c10::intrusive_ptr<TorchWork> enqueue(OpName op, bool async_op, const OpOptions& options,
                                        const std::function<void(ctran::gpu::Stream)>& issue,
                                        std::shared_ptr<void> hold,
                                        std::vector<int> awaited) override {
    const auto keepAlive = [&] { return hold; };
    return stream::workOf(
        gpu_->enqueueWork(issue, std::move(awaited), stream::currentStream(backend_.getDevice()),
                          {.name = toString(op),
                           .timeout = backend_.timeoutOf(options),
                           .aside = async_op,
                           .keepAlive = std::ref(keepAlive)}),
        backend_.getDevice());
  }

  std::vector<std::string> exchange(const std::string& own) override {
    gpu_->throwIfBroken();
    // With a byte before it: there has to be something.
    const std::string said = '\n' + own;
    std::string all(said.size() * static_cast<size_t>(backend_.getSize()), '\0');
    ctran::Collective c;
    c.kind = ctran::CollectiveKind::AllGather;
    c.type = ctran::DataType::Opaque1;
    c.count = said.size();
    c.input = reinterpret_cast<const std::byte*>(said.data());
    c.output = reinterpret_cast<std::byte*>(all.data());
    EngineWaitHooks hooks;
    try {
      backend_.engine().run(c, backend_.getOptions().timeout, &hooks);
    } catch (...) {  // the program sees it
      gpu_->observer().seen();
      gpu_->diagnose();
      throw;
    }
    std::vector<std::string> texts;
    for (size_t at = 0; at < all.size(); at += said.size()) {
      texts.push_back(all.substr(at + 1, own.size()));
    }
    return texts;
  }

  const std::shared_ptr<ctran::gpu::EventPool>& events() const override { return gpu_->events(); }

  void atEnd(std::weak_ptr<std::function<void()>> release) override {
    gpu_->onBreak(std::move(release));
  }

 private:
  CtranBackend& backend_;
  const std::shared_ptr<ctran::GpuCommunicator> gpu_;
};

}  // namespace

std::shared_ptr<TorchCommWindow> makeGpuWindow(CtranBackend& backend) {
  backend.gpu()->throwIfBroken();
  return std::make_shared<gpu::GpuWindow>(backend.getRank(), backend.getSize(), backend.getDevice(),
                                          std::make_unique<Host>(backend));
}

}  // namespace torch::comms
