#include <pybind11/stl.h>

#include "torchcomms/csrc/bindings/arguments.hpp"
#include "torchcomms/csrc/bindings/bindings.hpp"
#include "torchcomms/csrc/bindings/errors.hpp"

namespace py = pybind11;

namespace torch::comms {

namespace {

/// The interpreter lock, if this thread has it.
void* releaseInterpreter() { return PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr; }

void acquireInterpreter(void* released) {
  if (released != nullptr) PyEval_RestoreThread(static_cast<PyThreadState*>(released));
}

/// Runs signal handlers; what they raise ends the wait. (Python runs them in the main thread alone,
/// in others this does nothing.)
void checkSignals() {
  const py::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

bool wait(TorchWork& work, const std::optional<py::object>& timeout) {
  if (timeout) return work.wait(toTimeout(*timeout));
  work.wait();
  return true;
}

}  // namespace

PyObject* wrapWork(const c10::intrusive_ptr<TorchWork>& work) {
  // Synchronous operations all end with the same work, so they share its Python object too.
  static PyObject* completed = py::cast(TorchWorkCompleted::shared()).release().ptr();
  if (work == TorchWorkCompleted::shared()) {
    Py_INCREF(completed);
    return completed;
  }
  return py::cast(work).release().ptr();
}

void bindWork(py::module_& module) {
  setHostRuntime({&releaseInterpreter, &acquireInterpreter, &checkSignals});

  py::enum_<WorkStatus>(module, "WorkStatus", "How far an operation has come.")
      .value("NOT_STARTED", WorkStatus::NOT_STARTED)
      .value("INPROGRESS", WorkStatus::INPROGRESS)
      .value("COMPLETED", WorkStatus::COMPLETED)
      .value("TIMEDOUT", WorkStatus::TIMEDOUT)
      .value("ERROR", WorkStatus::ERROR);

  py::class_<TorchWork, c10::intrusive_ptr<TorchWork>>(
      module, "TorchWork", "One operation of a communicator. Usable from any thread.")
      .def("is_completed", &TorchWork::isCompleted,
           "Whether the operation has ended, well or not; never blocks. After a failure wait() "
           "raises.")
      .def("wait", &wait, py::arg("timeout") = py::none(),
           "Makes the result usable: on CPU blocks until the operation has ended. With `timeout` "
           "(a datetime.timedelta) blocks at most so long, and returns False if the operation has "
           "not ended (it goes on); else returns True. Raises the error of a failed operation.")
      .def("wait_blocking", &TorchWork::waitBlocking,
           "Blocks until the operation has ended, on any device. Raises like wait().")
      .def_property_readonly("status", &TorchWork::status, "A WorkStatus; never blocks.")
      .def(
          "exception",
          [](const TorchWork& self) -> py::object {
            const std::exception_ptr error = self.exception();
            return error ? toPythonException(error) : py::none();
          },
          "The error of a failed operation, else None; never blocks.")
      .def("__repr__", [](const TorchWork& self) {
        return "<TorchWork " + py::cast(self.status()).attr("name").cast<std::string>() + ">";
      });
}

}  // namespace torch::comms
