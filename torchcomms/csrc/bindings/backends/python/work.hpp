#pragma once

#include <comms/torchcomms/TorchWork.hpp>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "torchcomms/csrc/bindings/bindings.hpp"

namespace torch::comms {

/// What a Python backend returned for an operation: an object with `wait()`, and perhaps
/// `is_completed()`. It has ended once either says so.
class PythonWork final : public TorchWork {
 public:
  /// Of None, a TorchWork, or an object with `wait`. Throws py::type_error. Needs the interpreter
  /// lock.
  static c10::intrusive_ptr<TorchWork> of(const char* method, const pybind11::object& returned);

  explicit PythonWork(pybind11::object object);
  ~PythonWork() override;

  WorkStatus status() const override;
  std::exception_ptr exception() const override;
  /// A thread of its own waits, if it has not ended yet.
  void setCallback(std::function<void()> callback) override;

 protected:
  /// With a limit an object without is_completed() is not waited for at all.
  bool doWait(std::optional<std::chrono::milliseconds> limit) override;

 private:
  void waitOnce() const;
  bool saysCompleted() const;

  pybind11::object object_;
  const bool tells_;  ///< has is_completed
  mutable std::mutex mutex_;
  mutable bool ended_ = false;        ///< guarded by mutex_
  mutable std::exception_ptr error_;  ///< guarded by mutex_
};

}  // namespace torch::comms
