#include "torchcomms/csrc/bindings/backends/python/work.hpp"

#include <thread>

#include "ctran/os/process.h"

namespace py = pybind11;

namespace torch::comms {

c10::intrusive_ptr<TorchWork> PythonWork::of(const char* method, const py::object& returned) {
  if (returned.is_none()) return TorchWorkCompleted::shared();
  if (py::isinstance<TorchWork>(returned)) {
    return returned.cast<c10::intrusive_ptr<TorchWork>>();
  }
  if (py::hasattr(returned, "wait")) return c10::make_intrusive<PythonWork>(returned);
  throw py::type_error(std::string(method) +
                       "() of a Python backend must return None, a TorchWork, or an object with "
                       "wait(); got " +
                       py::repr(returned).cast<std::string>());
}

PythonWork::PythonWork(py::object object)
    : object_(std::move(object)), tells_(py::hasattr(object_, "is_completed")) {}

PythonWork::~PythonWork() {
  const py::gil_scoped_acquire lock;
  object_ = py::object();
  error_ = nullptr;  // may hold Python objects too
}

bool PythonWork::saysCompleted() const {
  if (!tells_) return false;
  const py::gil_scoped_acquire lock;
  return object_.attr("is_completed")().cast<bool>();
}

WorkStatus PythonWork::status() const {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return error_ ? WorkStatus::ERROR : WorkStatus::COMPLETED;
  }
  if (!saysCompleted()) return WorkStatus::INPROGRESS;
  waitOnce();  // returns at once, and says how it has ended
  const std::lock_guard lock(mutex_);
  return error_ ? WorkStatus::ERROR : WorkStatus::COMPLETED;
}

/// Several threads may wait: each asks the object, the first answer stands.
void PythonWork::waitOnce() const {
  std::exception_ptr error;
  {
    const py::gil_scoped_acquire lock;
    try {
      object_.attr("wait")();
    } catch (...) {
      error = std::current_exception();
    }
  }
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  ended_ = true;
  error_ = error;
}

bool PythonWork::doWait(std::optional<std::chrono::milliseconds> limit) {
  using Clock = std::chrono::steady_clock;
  if (limit) {
    const Clock::time_point deadline = Clock::now() + *limit;
    while (status() == WorkStatus::INPROGRESS) {
      if (!tells_ || Clock::now() >= deadline) return false;
      const HostWait released;
      HostWait::checkInterrupts();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  const bool ended = [&] {
    const std::lock_guard lock(mutex_);
    return ended_;
  }();
  if (!ended) waitOnce();
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
  return true;
}

std::exception_ptr PythonWork::exception() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void PythonWork::setCallback(std::function<void()> callback) {
  if (isCompleted()) return callback();
  auto self = c10::intrusive_ptr<PythonWork>::reclaim_copy(this);
  ctran::startThread("comms-wait", [self = std::move(self), callback = std::move(callback)] {
    self->waitOnce();
    callback();
  });
}

}  // namespace torch::comms
