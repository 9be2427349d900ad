// Windows of NcclBackend: not the library's, but the device's own copies and stream operations.

#include "torchcomms/csrc/backends/gpu/window.hpp"

#include "torchcomms/csrc/backends/nccl/backend.hpp"

namespace torch::comms {

/// The backend outlives its windows, which hold it.
class NcclBackend::WindowHost final : public ctran::GpuWindowHost {
 public:
  WindowHost(NcclBackend& backend, uint64_t number)
      : backend_(backend),
        group_(backend.shareGroup()),
        name_("window " + std::to_string(number)) {}

  std::shared_ptr<ctran::StreamOperation> enqueue(const std::function<void(nccl::Stream)>& issue,
                                                  std::vector<int>, nccl::Stream stream,
                                                  const ctran::EnqueueOptions& options) override {
    if (group_ != backend_.shareGroup()) {
      throw ctran::Error(
          ctran::ErrorKind::InvalidArgument,
          "the members of the window's communicator have been changed by reconfigure()", {},
          std::string(options.name), "make a new window");
    }
    ctran::EnqueueOptions bounded = options;
    if (bounded.timeout == kNoTimeout) bounded.timeout = backend_.options_.timeout;
    return backend_.enqueue(bounded, stream, /*together=*/false, issue);
  }

  std::vector<std::string> exchange(const std::string& own) override {
    group_->throwIfBroken();
    const auto& outOfBand = group_->setup().outOfBand;
    if (!outOfBand) return {own};
    return outOfBand->exchange(name_ + "/" + std::to_string(exchanges_++), own,
                               backend_.options_.timeout);
  }

  ctran::StreamQueue& queue() override { return *group_; }

  std::chrono::milliseconds timeout() const override { return backend_.options_.timeout; }

 private:
  NcclBackend& backend_;
  const std::shared_ptr<nccl::Group> group_;
  const std::string name_;
  uint64_t exchanges_ = 0;
};

std::shared_ptr<TorchCommWindow> NcclBackend::new_window() {
  if (vendor_.platform != ctran::gpu::Platform::Cuda) unsupported("new_window");
  group().throwIfBroken();
  return std::make_shared<gpu::GpuWindow>(getRank(), getSize(), device_,
                                          std::make_unique<WindowHost>(*this, windows_++));
}

}  // namespace torch::comms
