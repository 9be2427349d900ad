#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "ctran/base/error.h"
#include "ctran/base/work.h"

/// What the types of this module share: references, errors, waits.
namespace mscclpp::python {

/// A reference that is owned.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

/// Python's error indicator is set: return null.
struct PythonError : std::exception {
  const char* what() const noexcept override { return "an error of Python"; }
};

/// `object`, or a PythonError if it is null.
inline Ref checked(PyObject* object) {
  if (object == nullptr) throw PythonError();
  return Ref(object);
}

/// Raises an exception of Python's.
[[noreturn]] void raise(PyObject* type, const std::string& message);

/// Sets the error indicator to the exception of mscclpp.errors that says what an Error says.
void setError(const ctran::Error& error);

/// Runs a function; its exceptions become Python's, and null is returned.
template <class Function>
PyObject* guarded(Function&& function) noexcept {
  try {
    return function();
  } catch (const PythonError&) {
  } catch (const ctran::Error& error) {
    setError(error);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

std::string text(PyObject* object, const char* what);
int64_t integer(PyObject* object, const char* what);
double number(PyObject* object, const char* what);

/// Takes the interpreter's lock again. When the interpreter goes, Python, before 3.14, would end
/// this thread in the middle of whatever has called us: destructors on the way would end the
/// process. It stays.
inline void restoreThread(PyThreadState* saved) {
  try {
    PyEval_RestoreThread(saved);
  } catch (const abi::__forced_unwind&) {
    while (true) ::pause();
  }
}

/// Waits release the interpreter's lock, and end with Ctrl-C.
class Waiting final : public ctran::WaitHooks {
 public:
  void beforeBlocking() override { saved_ = PyEval_SaveThread(); }
  void afterBlocking() override {
    restoreThread(saved_);
    saved_ = nullptr;
  }
  void interrupted() override {
    const bool released = saved_ != nullptr;
    if (released) afterBlocking();
    const int raised = PyErr_CheckSignals();
    if (released) beforeBlocking();
    if (raised != 0) throw PythonError();
  }

 private:
  PyThreadState* saved_ = nullptr;
};

/// The interpreter's lock is free while it lives; waits end with Ctrl-C.
class Unlocked final : public ctran::WaitHooks {
 public:
  Unlocked() : saved_(PyEval_SaveThread()) {}
  ~Unlocked() override { restoreThread(saved_); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

  void beforeBlocking() override {}
  void afterBlocking() override {}
  void interrupted() override {
    restoreThread(saved_);
    const int raised = PyErr_CheckSignals();
    saved_ = PyEval_SaveThread();
    if (raised != 0) throw PythonError();
  }

 private:
  PyThreadState* saved_;
};

}  // namespace mscclpp::python
