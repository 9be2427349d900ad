#pragma once

#include <cxxabi.h>
#include <torch/csrc/utils/pybind.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "torchcomms/csrc/exit_gate.hpp"

namespace torch::comms {

/// Whether the interpreter is about to go, and this thread is not the one that takes it down.
/// Another one that asked for the interpreter's lock then would be ended in the middle of what it
/// does.
inline bool interpreterGoes() {
  if (ExitGate::isClosed() || Py_IsInitialized() == 0) return true;
#if PY_VERSION_HEX >= 0x030d0000
  const bool ends = Py_IsFinalizing() != 0;
#else
  const bool ends = _Py_IsFinalizing() != 0;
#endif
  return ends && PyGILState_Check() == 0;
}

/// Threads that ask for the interpreter's lock when it goes are ended by Python, before 3.14, in
/// the middle of whatever has called us: destructors on the way would end the process. They stay.
template <typename Ask>
void askForInterpreter(const Ask& ask) {
  try {
    if (ExitGate::enter()) {
      ask();
      ExitGate::leave();
      return;
    }
  } catch (const abi::__forced_unwind&) {
  }
  ExitGate::stay();
}

/// The interpreter's lock, for threads that may outlive the interpreter.
class InterpreterLock {
 public:
  InterpreterLock() {
    askForInterpreter([this] { lock_.emplace(); });
  }

 private:
  std::optional<pybind11::gil_scoped_acquire> lock_;
};

/// A Python callable that may be copied, called and let go of on any thread. When the interpreter
/// goes it is not called any more.
class Callback {
 public:
  explicit Callback(pybind11::function function)
      : function_(function.release().ptr(), [](PyObject* object) {
          // At the very end of the process there is nobody left to give it to.
          if (interpreterGoes()) return;
          const InterpreterLock lock;
          Py_DECREF(object);
        }) {}

  /// Throws what it raises. `arguments` are converted with the interpreter lock held.
  template <typename... Arguments>
  void operator()(const Arguments&... arguments) const {
    const InterpreterLock lock;
    call(pybind11::cast(arguments)...);
  }

  /// For threads on which nobody could catch what it raises: that goes to sys.unraisablehook.
  template <typename... Arguments>
  void quietly(const Arguments&... arguments) const noexcept {
    if (interpreterGoes()) return;
    const InterpreterLock lock;
    try {
      call(pybind11::cast(arguments)...);
    } catch (pybind11::error_already_set& error) {
      error.restore();
      PyErr_WriteUnraisable(function_.get());
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      PyErr_WriteUnraisable(function_.get());
    }
  }

 private:
  template <typename... Objects>
  void call(const Objects&... objects) const {
    pybind11::handle(function_.get())(objects...);
  }

  std::shared_ptr<PyObject> function_;
};

}  // namespace torch::comms
