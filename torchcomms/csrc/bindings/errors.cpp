#include "torchcomms/csrc/bindings/errors.hpp"

#include <c10/util/Exception.h>
#include <pybind11/stl.h>

#include "ctran/base/error.h"

namespace py = pybind11;

namespace torch::comms {

namespace {

const char* className(ctran::ErrorKind kind) {
  switch (kind) {
    case ctran::ErrorKind::Timeout:
      return "CommTimeoutError";
    case ctran::ErrorKind::PeerLost:
      return "PeerLostError";
    case ctran::ErrorKind::Mismatch:
      return "MismatchError";
    case ctran::ErrorKind::Aborted:
      return "AbortedError";
    case ctran::ErrorKind::InvalidArgument:
    case ctran::ErrorKind::Unsupported:
    case ctran::ErrorKind::System:
      break;
  }
  return "CommError";
}

void setEngineError(const ctran::Error& error, const std::string& operation) {
  // The classes are Python; errors are rare, so they are looked up when one happens.
  const py::object type = py::module_::import("torchcomms._errors").attr(className(error.kind()));
  const bool adds = error.op().empty() && !operation.empty();
  const std::string message = adds ? operation + ": " + error.what() : error.what();
  const py::object instance =
      type(message, error.ranks(), adds ? operation : error.op(), error.hint());
  PyErr_SetObject(type.ptr(), instance.ptr());
}

}  // namespace

void setPythonError(const std::exception_ptr& error, const char* operation) noexcept {
  try {
    try {
      std::rethrow_exception(error);
    } catch (const ctran::Error& e) {
      setEngineError(e, operation);
    } catch (py::error_already_set& e) {
      e.restore();
    } catch (const py::builtin_exception& e) {
      e.set_error();
    } catch (const c10::Error& e) {
      PyErr_SetString(PyExc_RuntimeError, e.what_without_backtrace());
    } catch (const std::invalid_argument& e) {
      PyErr_SetString(PyExc_ValueError, e.what());
    } catch (const std::exception& e) {
      PyErr_SetString(PyExc_RuntimeError, e.what());
    } catch (...) {
      PyErr_SetString(PyExc_RuntimeError, "unknown error");
    }
  } catch (py::error_already_set& e) {  // while making the exception: report that one
    e.restore();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
}

py::object toPythonException(const std::exception_ptr& error) {
  setPythonError(error);
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return py::reinterpret_steal<py::object>(value);
}

void registerErrorTranslation() {
  py::register_local_exception_translator([](std::exception_ptr error) {
    if (error) setPythonError(error);
  });
  // What torch.distributed calls of ours throws through torch's functions, not these.
  py::register_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const ctran::Error&) {
      setPythonError(error);
    }
  });
}

}  // namespace torch::comms
