#pragma once

#include <comms/torchcomms/TorchWork.hpp>
#include <mutex>
#include <vector>

namespace torch::comms {

/// Several operations as one: it has ended when all have.
class CombinedWork final : public TorchWork {
 public:
  explicit CombinedWork(std::vector<c10::intrusive_ptr<TorchWork>> works)
      : works_(std::move(works)) {}

  /// One work is itself, none has completed.
  static c10::intrusive_ptr<TorchWork> of(std::vector<c10::intrusive_ptr<TorchWork>> works);

  WorkStatus status() const override;
  std::exception_ptr exception() const override;
  void setCallback(Hook callback) override;

 protected:
  bool doWait(std::optional<std::chrono::milliseconds> limit) override;
  bool doWaitBlocking(std::optional<std::chrono::milliseconds> limit) override;
  /// With the first of them.
  void setStartCallback(Hook callback) override;

 private:
  const std::vector<c10::intrusive_ptr<TorchWork>> works_;
};

/// An operation that has been asked for, but will be issued later. All methods may be called
/// before that; waiting throws then.
class DeferredWork final : public TorchWork {
 public:
  /// The operation has been issued. Once.
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
  std::vector<Hook> callbacks_;         ///< guarded by mutex_; for when it is issued
};

}  // namespace torch::comms
