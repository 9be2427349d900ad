#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <comms/torchcomms/TorchWork.hpp>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace torch::comms::staged {

using Tensors = std::vector<at::Tensor>;

/// What an operation writes in host memory, and its way to the device: on a stream of torch's pool,
/// behind what was on the current stream when the operation was issued. If a device has no streams,
/// the thread that begins the copy does it. All methods but the constructor may be called on any
/// thread.
class Results : public std::enable_shared_from_this<Results> {
 public:
  /// `read`: the outputs are inputs, too. The device has to be current.
  Results(at::Device device, const Tensors& outputs, bool read);

  Tensors& host() { return host_; }
  /// Copies on the current stream.
  void copyNow();
  /// Starts to copy, at the first call; does not wait. Never throws, see error().
  void begin() noexcept;
  /// Returns whether all results are on the device. Never blocks.
  bool haveArrived() const;
  /// Orders the current stream behind the copy. Called after begin().
  void follow();
  /// Calls `then` when all results are on the device, or cannot come: at once, or on a thread of
  /// its own. Called after begin().
  void whenArrived(TorchWork::Hook then);
  std::exception_ptr error() const { return hasBegun_ ? error_ : nullptr; }

 private:
  void copy(bool async);

  const at::Device device_;
  const Tensors outputs_;
  Tensors host_;
  std::optional<c10::Stream> stream_;
  c10::Event issued_;
  c10::Event copied_;
  std::once_flag once_;
  std::atomic<bool> hasBegun_{false};
  std::exception_ptr error_;  ///< written before hasBegun_
};

/// An operation in host memory, which has ended when its results are on the device. They are copied
/// there even if the work is dropped.
class StagedWork final : public TorchWork {
 public:
  StagedWork(c10::intrusive_ptr<TorchWork> inner, std::shared_ptr<Results> results);

  WorkStatus status() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override { return inner_->sourceRank(); }
  void setCallback(Hook callback) override;

 protected:
  bool doWait(std::optional<std::chrono::milliseconds> limit) override;
  bool doWaitBlocking(std::optional<std::chrono::milliseconds> limit) override;
  void setStartCallback(Hook callback) override;

 private:
  const c10::intrusive_ptr<TorchWork> inner_;
  const std::shared_ptr<Results> results_;
};

}  // namespace torch::comms::staged
