// What Python asks of the driver, and streams and memory for measurements, which need no torch.
// Nothing here needs CUDA to be there when it is built.
#include "ctran/gpu.h"

#include "mscclpp/csrc/bindings/communicator.h"

namespace mscclpp::python {
namespace {

using ctran::api::OwnGpuStream;

struct StreamObject {
  PyObject_HEAD std::unique_ptr<OwnGpuStream> stream;
};

PyTypeObject* type = nullptr;

OwnGpuStream& self(PyObject* object) { return *reinterpret_cast<StreamObject*>(object)->stream; }

void destroy(PyObject* object) {
  auto& stream = reinterpret_cast<StreamObject*>(object)->stream;
  stream.~unique_ptr();
  PyTypeObject* const type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

/// A capsule that keeps a value.
template <class T>
PyObject* kept(T value, const char* name) {
  auto owner = std::make_unique<T>(std::move(value));
  PyObject* const capsule = PyCapsule_New(owner.get(), name, [](PyObject* capsule) {
    delete static_cast<T*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
  });
  if (capsule != nullptr) static_cast<void>(owner.release());
  return capsule;
}

PyObject* handle(PyObject* object, void*) { return PyLong_FromVoidPtr(self(object).get()); }

/// copy(to, data): the bytes are in the GPU's memory when what follows on the stream runs
PyObject* copy(PyObject* object, PyObject* arguments) {
  return guarded([&] {
    unsigned long long to = 0;
    Py_buffer data;
    if (!PyArg_ParseTuple(arguments, "Ky*", &to, &data)) throw PythonError();
    const std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> released(&data, PyBuffer_Release);
    self(object).copy(reinterpret_cast<void*>(to), data.buf, static_cast<size_t>(data.len));
    return Py_NewRef(Py_None);
  });
}

/// read(from, size) -> bytes
PyObject* read(PyObject* object, PyObject* arguments) {
  return guarded([&] {
    unsigned long long from = 0;
    Py_ssize_t size = 0;
    if (!PyArg_ParseTuple(arguments, "Kn", &from, &size)) throw PythonError();
    Ref bytes = checked(PyBytes_FromStringAndSize(nullptr, size));
    char* const to = PyBytes_AS_STRING(bytes.get());
    if (size != 0) {
      const Unlocked unlocked;
      self(object).read(to, reinterpret_cast<void*>(from), static_cast<size_t>(size));
    }
    return bytes.release();
  });
}

PyObject* synchronize(PyObject* object, PyObject*) {
  return guarded([&] {
    {
      const Unlocked unlocked;
      self(object).synchronize();
    }
    return Py_NewRef(Py_None);
  });
}

constexpr const char* kGraph = "a graph";
using Launch = std::function<void()>;

PyObject* launch(PyObject* capsule, PyObject*) {
  return guarded([&] {
    const auto* const launch = static_cast<Launch*>(PyCapsule_GetPointer(capsule, kGraph));
    if (launch == nullptr) throw PythonError();
    (*launch)();
    return Py_NewRef(Py_None);
  });
}
PyMethodDef launching{"launch", launch, METH_NOARGS, "Puts the graph on its stream."};

/// capture(function) -> a function that puts on the stream what the other one has
PyObject* capture(PyObject* object, PyObject* function) {
  return guarded([&] {
    Launch graph =
        self(object).capture([&] { static_cast<void>(checked(PyObject_CallNoArgs(function))); });
    const Ref capsule = checked(kept(std::move(graph), kGraph));
    return PyCFunction_New(&launching, capsule.get());
  });
}

PyObject* open(PyObject*, PyObject* device) {
  return guarded([&] {
    auto stream = std::make_unique<OwnGpuStream>(static_cast<int>(integer(device, "device")));
    Ref object = checked(type->tp_alloc(type, 0));
    new (&reinterpret_cast<StreamObject*>(object.get())->stream)
        std::unique_ptr<OwnGpuStream>(std::move(stream));
    return object.release();
  });
}

/// allocate_gpu(device, bytes) -> address, owner
PyObject* allocate(PyObject*, PyObject* arguments) {
  return guarded([&] {
    int device = 0;
    Py_ssize_t size = 0;
    if (!PyArg_ParseTuple(arguments, "in", &device, &size)) throw PythonError();
    if (size < 1)
      raise(PyExc_ValueError, "there is no memory of " + std::to_string(size) + " bytes");
    auto memory = ctran::api::allocateOnGpu(device, static_cast<size_t>(size));
    const auto address = reinterpret_cast<unsigned long long>(memory.get());
    const Ref owner = checked(kept(std::move(memory), "memory of a GPU"));
    return Py_BuildValue("KO", address, owner.get());
  });
}

PyObject* numberOrNone(const std::optional<int>& number) {
  return number ? PyLong_FromLong(*number) : Py_NewRef(Py_None);
}

PyObject* count(PyObject*, PyObject*) {
  return guarded([&] {
    try {
      return PyLong_FromLong(ctran::api::gpuCount());
    } catch (const ctran::Error& error) {
      if (error.kind() != ctran::ErrorKind::Unsupported) throw;
      return PyLong_FromLong(0);
    }
  });
}

PyObject* current(PyObject*, PyObject*) {
  return guarded([&] { return numberOrNone(ctran::api::currentGpu()); });
}

PyObject* name(PyObject*, PyObject* device) {
  return guarded([&] {
    const int number = static_cast<int>(integer(device, "device"));
    return PyUnicode_FromString(ctran::api::gpuName(number).c_str());
  });
}

PyObject* links(PyObject*, PyObject*) {
  return guarded([&] { return PyUnicode_FromString(ctran::api::gpuLinks().c_str()); });
}

PyGetSetDef properties[] = {
    {"handle", handle, nullptr, "As CUDA has it.", nullptr},
    {},
};

PyMethodDef methods[] = {
    {"copy", copy, METH_VARARGS, "copy(to, data): to the GPU's memory, in the stream's order"},
    {"read", read, METH_VARARGS, "read(from, size): bytes, once all on the stream has ended"},
    {"synchronize", synchronize, METH_NOARGS, "Waits until all that is on the stream has ended."},
    {"capture", capture, METH_O,
     "capture(function): what puts on the stream, as a graph, what the function has put there"},
    {},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("A stream that does not wait for the default stream.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {},
};

PyMethodDef functions[] = {
    {"gpu_count", count, METH_NOARGS, "How many GPUs this process sees; 0 without a driver."},
    {"current_gpu", current, METH_NOARGS, "The GPU that this thread uses; None if it uses none."},
    {"gpu_name", name, METH_O, "gpu_name(device): as its maker calls it"},
    {"gpu_links", links, METH_NOARGS, "What is between the GPUs that this process sees."},
    {"open_stream", open, METH_O, "open_stream(device): a GpuStream"},
    {"allocate_gpu", allocate, METH_VARARGS, "allocate_gpu(device, bytes): an address, its owner"},
    {},
};

}  // namespace

bool addGpu(PyObject* module) {
  PyType_Spec spec{"mscclpp._runtime.GpuStream", sizeof(StreamObject), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return type != nullptr && PyModule_AddFunctions(module, functions) == 0 &&
         PyModule_AddType(module, type) == 0;
}

}  // namespace mscclpp::python
