#include "torchcomms/csrc/bindings/arguments.hpp"
#include "torchcomms/csrc/bindings/bindings.hpp"
#include "torchcomms/csrc/bindings/callbacks.hpp"
#include "torchcomms/csrc/bindings/errors.hpp"

namespace py = pybind11;

namespace torch::comms {

namespace {

/// The interpreter lock, if this thread has it.
void* releaseInterpreter() { return PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr; }

void acquireInterpreter(void* released) {
  if (released == nullptr) return;
  askForInterpreter([released] { PyEval_RestoreThread(static_cast<PyThreadState*>(released)); });
}

/// Runs signal handlers; what they raise ends the wait. (Python runs them in the main thread alone,
/// in others this does nothing.)
void checkSignals() {
  if (interpreterGoes()) return;
  const InterpreterLock lock;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

void callWithInterpreter(void (*function)(void* argument), void* argument) {
  askForInterpreter([&] {
    const py::gil_scoped_acquire lock;
    function(argument);
  });
}

PyTypeObject* workClass = nullptr;

TorchWork& workOf(PyObject* self) {
  if (auto* work = exactly<TorchWork>(self, workClass)) [[likely]]
    return *work;
  return py::cast<TorchWork&>(py::handle(self));
}

/// The one argument of `wait`; null if it is not given.
PyObject* timeoutOf(PyObject* const* args, Py_ssize_t positional, PyObject* names) {
  const Py_ssize_t keywords = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  if (positional + keywords == 0) [[likely]]
    return nullptr;
  if (positional + keywords > 1) {
    throw py::type_error("wait() takes at most 1 argument (" +
                         std::to_string(positional + keywords) + " given)");
  }
  if (keywords == 1 &&
      PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "timeout") != 0) {
    throw py::type_error("wait() got an unexpected keyword argument '" +
                         py::str(PyTuple_GET_ITEM(names, 0)).cast<std::string>() + "'");
  }
  return args[0] == Py_None ? nullptr : args[0];
}

PyObject* wait(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  try {
    TorchWork& work = workOf(self);
    PyObject* const timeout = timeoutOf(args, count, names);
    if (timeout != nullptr) return PyBool_FromLong(work.wait(toTimeout(timeout)) ? 1 : 0);
    work.wait();
    Py_RETURN_TRUE;
  } catch (...) {
    setPythonError(std::current_exception());
    return nullptr;
  }
}

PyObject* isCompleted(PyObject* self, PyObject*) {
  try {
    return PyBool_FromLong(workOf(self).isCompleted() ? 1 : 0);
  } catch (...) {
    setPythonError(std::current_exception());
    return nullptr;
  }
}

// What every asynchronous call makes use of, see addOperations.
PyMethodDef methods[] = {
    {"wait", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&wait)),
     METH_FASTCALL | METH_KEYWORDS,
     "wait($self, /, timeout=None)\n--\n\n"
     "Makes the result usable: on CPU blocks until the operation has ended. With `timeout` (a "
     "datetime.timedelta) blocks at most so long, and returns False if the operation has not ended "
     "(it goes on); else returns True. Raises the error of a failed operation."},
    {"is_completed", &isCompleted, METH_NOARGS,
     "is_completed($self, /)\n--\n\n"
     "Whether the operation has ended, well or not; never blocks. After a failure wait() raises."},
};

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
  setHostRuntime({&releaseInterpreter, &acquireInterpreter, &checkSignals, &callWithInterpreter});

  py::enum_<WorkStatus>(module, "WorkStatus", "How far an operation has come.")
      .value("NOT_STARTED", WorkStatus::NOT_STARTED)
      .value("INPROGRESS", WorkStatus::INPROGRESS)
      .value("COMPLETED", WorkStatus::COMPLETED)
      .value("TIMEDOUT", WorkStatus::TIMEDOUT)
      .value("ERROR", WorkStatus::ERROR);

  py::class_<TorchWork, c10::intrusive_ptr<TorchWork>> type(
      module, "TorchWork", "One operation of a communicator. Usable from any thread.");
  workClass = addMethods(type, methods);
  type.def("wait_blocking", &TorchWork::waitBlocking,
           "Blocks until the operation has ended, on any device. Raises like wait().")
      .def_property_readonly("status", &TorchWork::shownStatus, "A WorkStatus; never blocks.")
      .def("_set_status", &TorchWork::setStatus, py::arg("status"),
           "What `status` and is_completed() say from now on, whatever becomes of the operation: "
           "for tests of what looks at works.")
      .def(
          "exception",
          [](const TorchWork& self) -> py::object {
            const std::exception_ptr error = self.exception();
            return error ? toPythonException(error) : py::none();
          },
          "The error of a failed operation, else None; never blocks.")
      .def("__repr__", [](const TorchWork& self) {
        return "<TorchWork " + py::cast(self.shownStatus()).attr("name").cast<std::string>() + ">";
      });
}

}  // namespace torch::comms
