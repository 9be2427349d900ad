#include "mscclpp/csrc/bindings/python.h"

namespace mscclpp::python {

void raise(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  throw PythonError();
}

void setError(const ctran::Error& error) {
  const Ref errors(PyImport_ImportModule("mscclpp.errors"));
  if (!errors) return;
  const Ref ranks(PyList_New(0));
  for (const int rank : error.ranks()) {
    const Ref number(PyLong_FromLong(rank));
    if (!ranks || !number || PyList_Append(ranks.get(), number.get()) != 0) return;
  }
  const Ref made(PyObject_CallMethod(errors.get(), "made", "isOss", static_cast<int>(error.kind()),
                                     error.what(), ranks.get(), error.op().c_str(),
                                     error.hint().c_str()));
  if (made) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.get())), made.get());
}

std::string text(PyObject* object, const char* what) {
  Py_ssize_t length = 0;
  const char* const characters =
      PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &length) : nullptr;
  if (characters == nullptr) {
    if (PyErr_Occurred()) throw PythonError();
    raise(PyExc_TypeError, std::string(what) + " must be a str");
  }
  return {characters, static_cast<size_t>(length)};
}

int64_t integer(PyObject* object, const char* what) {
  const long long value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    if (PyLong_Check(object)) raise(PyExc_ValueError, std::string(what) + " is far too large");
    raise(PyExc_TypeError, std::string(what) + " must be an int, not " + Py_TYPE(object)->tp_name);
  }
  return value;
}

double number(PyObject* object, const char* what) {
  const double value = PyFloat_AsDouble(object);
  if (value == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();
    raise(PyExc_TypeError, std::string(what) + " must be a number of seconds");
  }
  return value;
}

}  // namespace mscclpp::python
