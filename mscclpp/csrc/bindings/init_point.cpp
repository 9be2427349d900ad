// How the processes of a CommGroup come together.
#include "mscclpp/csrc/bindings/communicator.h"

namespace mscclpp::python {
namespace {

using ctran::api::InitPoint;
using ctran::api::Rendezvous;

struct InitPointObject {
  PyObject_HEAD std::unique_ptr<InitPoint> initPoint;
};

PyTypeObject* type = nullptr;

void destroy(PyObject* object) {
  auto& initPoint = reinterpret_cast<InitPointObject*>(object)->initPoint;
  initPoint.~unique_ptr();
  PyTypeObject* const type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* handle(PyObject* object, void*) {
  return PyUnicode_FromString(
      reinterpret_cast<InitPointObject*>(object)->initPoint->handle().c_str());
}

std::vector<std::string> strings(PyObject* list, const char* what) {
  std::vector<std::string> all;
  const Ref items = checked(PySequence_Fast(list, what));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    all.push_back(text(PySequence_Fast_GET_ITEM(items.get(), i), what));
  }
  return all;
}

PyObject* listOf(const std::vector<std::string>& words) {
  Ref list = checked(PyList_New(0));
  for (const std::string& word : words) {
    const Ref item =
        checked(PyBytes_FromStringAndSize(word.data(), static_cast<Py_ssize_t>(word.size())));
    if (PyList_Append(list.get(), item.get()) != 0) throw PythonError();
  }
  return list.release();
}

/// form(handles, name, seconds) -> Communicator
PyObject* form(PyObject* object, PyObject* arguments) {
  return guarded([&] {
    PyObject* handles = nullptr;
    const char* name = nullptr;
    double seconds = 0;
    if (!PyArg_ParseTuple(arguments, "Osd", &handles, &name, &seconds)) throw PythonError();
    ctran::api::CommunicatorOptions options;
    options.name = name;
    options.timeout = duration(seconds);
    Waiting hooks;
    return newCommunicator(reinterpret_cast<InitPointObject*>(object)->initPoint->form(
        strings(handles, "handles"), "mscclpp", options, &hooks));
  });
}

PyObject* open(PyObject*, PyObject*) {
  return guarded([&] {
    auto initPoint = std::make_unique<InitPoint>();
    Ref object = checked(type->tp_alloc(type, 0));
    new (&reinterpret_cast<InitPointObject*>(object.get())->initPoint)
        std::unique_ptr<InitPoint>(std::move(initPoint));
    return object.release();
  });
}

/// gather(address, secret, rank, size, word, seconds) -> words of all ranks
PyObject* gather(PyObject*, PyObject* arguments) {
  return guarded([&] {
    const char *address = nullptr, *secret = nullptr, *word = nullptr;
    int rank = 0, size = 0;
    double seconds = 0;
    if (!PyArg_ParseTuple(arguments, "ssiisd", &address, &secret, &rank, &size, &word, &seconds)) {
      throw PythonError();
    }
    const auto timeout = duration(seconds);
    Waiting hooks;
    if (rank != 0) {
      return listOf(Rendezvous::join({address}, secret, rank, size, word, timeout, &hooks));
    }
    Rendezvous rendezvous(address, secret);
    return listOf(rendezvous.gather(size, word, timeout, &hooks));
  });
}

PyGetSetDef properties[] = {
    {"handle", handle, nullptr, "To be given to the others; whoever knows it can join.", nullptr},
    {},
};

PyMethodDef methods[] = {
    {"form", form, METH_VARARGS, "form(handles, name, seconds): a Communicator"},
    {},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Where others of a communicator reach this process.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {},
};

PyMethodDef functions[] = {
    {"open_init_point", open, METH_NOARGS, "open_init_point(): an InitPoint"},
    {"gather", gather, METH_VARARGS,
     "gather(address, secret, rank, size, word, seconds): the words of all ranks; rank 0 listens "
     "at the address"},
    {},
};

}  // namespace

bool addInitPoint(PyObject* module) {
  PyType_Spec spec{"mscclpp._runtime.InitPoint", sizeof(InitPointObject), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return type != nullptr && PyModule_AddFunctions(module, functions) == 0 &&
         PyModule_AddType(module, type) == 0;
}

}  // namespace mscclpp::python
