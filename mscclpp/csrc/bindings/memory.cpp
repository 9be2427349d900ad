// Memory that the ranks of a host map, of the host or of a GPU, and how tensors are made of it
// (DLPack).
#include <algorithm>
#include <vector>

#include "ctran/gpu.h"
#include "ctran/window.h"
#include "mscclpp/csrc/bindings/communicator.h"

namespace mscclpp::python {
namespace {

// As DLPack has them, version 0.
constexpr int32_t kCpu = 1, kCuda = 2;
struct DlDevice {
  int32_t type = kCpu;
  int32_t id = 0;
};
struct DlDataType {
  uint8_t code = 0, bits = 0;
  uint16_t lanes = 1;
};
struct DlTensor {
  void* data = nullptr;
  DlDevice device;
  int32_t dimensions = 0;
  DlDataType type;
  int64_t* shape = nullptr;
  int64_t* strides = nullptr;
  uint64_t byteOffset = 0;
};
struct DlManagedTensor {
  DlTensor tensor;
  void* context = nullptr;
  void (*deleter)(DlManagedTensor*) = nullptr;
};

/// A tensor and what it stands on.
struct Managed {
  DlManagedTensor managed;
  std::shared_ptr<void> memory;
  std::vector<int64_t> shape, strides;
};

struct MemoryObject {
  PyObject_HEAD std::shared_ptr<void> memory;
  size_t bytes;
  int gpu;  // -1: the host
};

PyTypeObject* type = nullptr;
constexpr const char* kName = "dltensor";

MemoryObject& self(PyObject* object) { return *reinterpret_cast<MemoryObject*>(object); }

/// Who lets go of memory of a GPU waits for what runs there.
void letGo(std::shared_ptr<void>& memory) {
  const Unlocked unlocked;
  memory.reset();
}

void destroy(PyObject* object) {
  letGo(self(object).memory);
  self(object).memory.~shared_ptr();
  PyTypeObject* const type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* address(PyObject* object, void*) { return PyLong_FromVoidPtr(self(object).memory.get()); }
PyObject* bytes(PyObject* object, void*) { return PyLong_FromSize_t(self(object).bytes); }
PyObject* gpu(PyObject* object, void*) { return PyLong_FromLong(self(object).gpu); }

/// Whoever has taken the tensor has renamed the capsule, and deletes it.
void dropCapsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, kName)) return;
  auto* const managed = static_cast<DlManagedTensor*>(PyCapsule_GetPointer(capsule, kName));
  managed->deleter(managed);
}

std::vector<int64_t> integers(PyObject* given, const char* what) {
  const Ref items = checked(PySequence_Fast(given, what));
  std::vector<int64_t> all;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    all.push_back(integer(PySequence_Fast_GET_ITEM(items.get(), i), what));
  }
  return all;
}

/// to_dlpack(code, bits, shape, strides) -> capsule; shape and strides are in elements.
PyObject* toDlpack(PyObject* object, PyObject* arguments) {
  return guarded([&] {
    int code = 0, bits = 0;
    PyObject *shape = nullptr, *strides = nullptr;
    if (!PyArg_ParseTuple(arguments, "iiOO", &code, &bits, &shape, &strides)) throw PythonError();
    auto made = std::make_unique<Managed>();
    made->memory = self(object).memory;
    made->shape = integers(shape, "a shape");
    made->strides = integers(strides, "strides");
    DlTensor& tensor = made->managed.tensor;
    tensor.data = made->memory.get();
    if (self(object).gpu >= 0) tensor.device = {kCuda, self(object).gpu};
    tensor.dimensions = static_cast<int32_t>(made->shape.size());
    tensor.type.code = static_cast<uint8_t>(code);
    tensor.type.bits = static_cast<uint8_t>(bits);
    tensor.shape = made->shape.data();
    tensor.strides = made->strides.data();
    made->managed.context = made.get();
    made->managed.deleter = [](DlManagedTensor* managed) {
      delete static_cast<Managed*>(managed->context);
    };
    PyObject* const capsule = PyCapsule_New(&made->managed, kName, dropCapsule);
    if (capsule != nullptr) static_cast<void>(made.release());
    return capsule;
  });
}

/// allocate(bytes, gpu) -> Memory
PyObject* allocate(PyObject*, PyObject* arguments) {
  return guarded([&] {
    PyObject* given = nullptr;
    int gpu = -1;
    if (!PyArg_ParseTuple(arguments, "Oi", &given, &gpu)) throw PythonError();
    const int64_t wanted = integer(given, "the size of a buffer");
    if (wanted < 0) raise(PyExc_ValueError, "a buffer has no " + std::to_string(wanted) + " bytes");
    const auto size = static_cast<size_t>(wanted);
    const size_t some = std::max<size_t>(size, 1);
    std::shared_ptr<void> memory = gpu >= 0
                                       ? ctran::api::allocateOnGpu(gpu, some)
                                       : std::shared_ptr<void>(ctran::api::allocateShared(some));
    Ref object = checked(type->tp_alloc(type, 0));
    new (&self(object.get()).memory) std::shared_ptr<void>(std::move(memory));
    self(object.get()).bytes = size;
    self(object.get()).gpu = gpu;
    return object.release();
  });
}

/// gpu_of(address) -> -1: the host
PyObject* gpuOf(PyObject*, PyObject* given) {
  return guarded([&] {
    const auto address = static_cast<uintptr_t>(integer(given, "an address"));
    const auto found = ctran::api::gpuAllocationOf(reinterpret_cast<const void*>(address));
    return PyLong_FromLong(found.device);
  });
}

PyGetSetDef properties[] = {
    {"address", address, nullptr, "Of the first byte.", nullptr},
    {"bytes", bytes, nullptr, "How many there are.", nullptr},
    {"gpu", gpu, nullptr, "Whose memory it is; -1: the host's.", nullptr},
    {},
};

PyMethodDef methods[] = {
    {"to_dlpack", toDlpack, METH_VARARGS, "to_dlpack(code, bits, shape, strides): a capsule"},
    {},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Memory that the ranks of a host map. Zeros at first.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {},
};

PyMethodDef functions[] = {
    {"allocate", allocate, METH_VARARGS, "allocate(bytes, gpu): Memory; of the host for gpu -1"},
    {"gpu_of", gpuOf, METH_O, "gpu_of(address): whose memory it is; -1: the host's"},
    {},
};

}  // namespace

bool addMemory(PyObject* module) {
  PyType_Spec spec{"mscclpp._runtime.Memory", sizeof(MemoryObject), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return type != nullptr && PyModule_AddFunctions(module, functions) == 0 &&
         PyModule_AddType(module, type) == 0;
}

}  // namespace mscclpp::python
