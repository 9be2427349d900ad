#pragma once

#include <comms/torchcomms/TorchWork.hpp>
#include <mutex>
#include <vector>

namespace torch::comms {

/// Several operations as one work, which has ended when all of them have.
class CombinedWork final : public TorchWork {
 public:
  explicit CombinedWork(std::vector<c10::intrusive_ptr<TorchWork>> works)
      : works_(std::move(works)) {}

  /// Returns the work itself if there is one, and a completed work if there is none.
  static c10::intrusive_ptr<TorchWork> of(std::vector<c10::intrusive_ptr<TorchWork>> works);

  WorkStatus status() const override;
  std::exception_ptr exception() const override;
  void setCallback(Hook callback) override;

 protected:
  bool doWait(std::optional<std::chrono::milliseconds> limit) override;
  bool doWaitBlocking(std::optional<std::chrono::milliseconds> limit) override;
  /// The callback is called when the first of them starts.
  void setStartCallback(Hook callback) override;

 private:
  const std::vector<c10::intrusive_ptr<TorchWork>> works_;
};

/// An operation that has been requested, but will be issued later. All methods may be called before
/// that; waiting throws then.
class DeferredWork final : public TorchWork {
 public:
  /// Is called once, when the operation has been issued.
  void issuedAs(const c10::intrusive_ptr<TorchWork>& work);

  WorkStatus status() const override;
  std::exception_ptr exception() const override;
  void setCallback(Hook callback) override;

 protected:
  bool doWait(std::optional<std::chrono::milliseconds> limit) override;
  bool doWaitBlocking(std::optional<std::chrono::milliseconds> limit) override;

 private:
  c10::intrusive_ptr<TorchWork> issued() const;
  c10::intrusive_ptr<TorchWork> require() const;

  mutable std::mutex mutex_;
  c10::intrusive_ptr<TorchWork> work_;  ///< guarded by mutex_
  std::vector<Hook> callbacks_;         ///< guarded by mutex_; called when it is issued
};

}  // namespace torch::comms
