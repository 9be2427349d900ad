// Ctrl-C in calls of libmscclpp, which knows nothing of Python, and which ctypes calls.
#include "mscclpp/csrc/bindings/communicator.h"

namespace mscclpp::python {
namespace {

PyObject* gRaised = nullptr;  // by a handler of signals, in a call that has not returned yet

PyObject* takeRaised() {
#if PY_VERSION_HEX >= 0x030c0000
  return PyErr_GetRaisedException();
#else
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
#endif
}

/// What waits ask, on the main thread, which does not hold the interpreter's lock then.
int isInterrupted() {
  const PyGILState_STATE state = PyGILState_Ensure();
  const bool isRaised = PyErr_CheckSignals() != 0;
  if (isRaised) Py_XSETREF(gRaised, takeRaised());
  PyGILState_Release(state);
  return isRaised ? 1 : 0;
}

PyObject* address(PyObject*, PyObject*) {
  return PyLong_FromVoidPtr(reinterpret_cast<void*>(&isInterrupted));
}

PyObject* raised(PyObject*, PyObject*) {
  if (gRaised == nullptr) return Py_NewRef(Py_None);
  return std::exchange(gRaised, nullptr);
}

PyMethodDef functions[] = {
    {"is_interrupted", address, METH_NOARGS, "For mscclpp_set_interruption: its address."},
    {"take_raised", raised, METH_NOARGS, "What a signal's handler has raised in a call, once."},
    {},
};

}  // namespace

bool addSignals(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace mscclpp::python
