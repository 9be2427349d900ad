#pragma once

#include <comms/torchcomms/BackendWrapper.hpp>

#if TORCHCOMMS_TORCH_SINCE(15)

#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/Window.hpp>

namespace torch::comms {

/// A window of a communicator as a window of torch.distributed. With `asyncOp` false a call waits
/// for its end. Usable by several threads, as the backend that has made it.
class WindowWrapper final : public c10d::Window {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  /// Calls with the lock of the backend, and makes a work for torch.distributed.
  using Issue = std::function<WorkPtr(
      OpName, std::chrono::milliseconds, bool,
      const std::function<c10::intrusive_ptr<TorchWork>(std::chrono::milliseconds)>&)>;

  WindowWrapper(std::shared_ptr<TorchCommWindow> window, Issue issue)
      : window_(std::move(window)), issue_(std::move(issue)) {}

  void tensor_register(const at::Tensor& tensor, bool owning) override;
  void tensor_deregister() override;
  WorkPtr put(const at::Tensor& tensor, int64_t dstRank, int64_t targetOffsetNelems, bool asyncOp,
              const c10d::PutOptions& opts) override;
  at::Tensor map_remote_tensor(int64_t rank) override;
  WorkPtr signal(int64_t peerRank, bool asyncOp, const c10d::SignalOptions& opts) override;
  WorkPtr wait_signal(int64_t peerRank, bool asyncOp, const c10d::WaitSignalOptions& opts) override;
  c10d::WindowAttr get_attr(int64_t peerRank) override;

 private:
  const std::shared_ptr<TorchCommWindow> window_;
  const Issue issue_;
};

}  // namespace torch::comms

#endif
