#include "torchcomms/csrc/backends/ctran/gpu_window.hpp"

#include "torchcomms/csrc/engine_wait_hooks.hpp"

namespace torch::comms {

namespace {

class Host final : public ctran::GpuWindowHost {
 public:
  explicit Host(CtranBackend& backend) : backend_(backend), gpu_(backend.gpu()) {}

  std::shared_ptr<ctran::StreamOperation> enqueue(
      const std::function<void(ctran::gpu::Stream)>& issue, std::vector<int> awaited,
      ctran::gpu::Stream stream, const ctran::EnqueueOptions& options) override {
    return gpu_->enqueueWork(issue, std::move(awaited), stream, options);
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

  ctran::StreamQueue& queue() override { return *gpu_; }

  std::chrono::milliseconds timeout() const override { return backend_.getOptions().timeout; }

 private:
  CtranBackend& backend_;
  const std::shared_ptr<ctran::GpuQueue> gpu_;
};

}  // namespace

std::shared_ptr<TorchCommWindow> makeGpuWindow(CtranBackend& backend) {
  backend.gpu()->throwIfBroken();
  return std::make_shared<gpu::GpuWindow>(backend.getRank(), backend.getSize(), backend.getDevice(),
                                          std::make_unique<Host>(backend));
}

}  // namespace torch::comms
