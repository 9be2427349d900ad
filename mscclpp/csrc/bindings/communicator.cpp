#include "mscclpp/csrc/bindings/communicator.h"

#include <structmember.h>

#include <array>
#include <cmath>

namespace mscclpp::python {
namespace {

using ctran::CollectiveKind;
using ctran::api::Call;

struct CommunicatorObject {
  PyObject_HEAD std::shared_ptr<Shared> shared;
  PyObject* weakReferences;
};

PyTypeObject* type = nullptr;

Shared& self(PyObject* object) { return *reinterpret_cast<CommunicatorObject*>(object)->shared; }

void destroy(PyObject* object) {
  auto* const own = reinterpret_cast<CommunicatorObject*>(object);
  if (own->weakReferences != nullptr) PyObject_ClearWeakRefs(object);
  {
    const Unlocked unlocked;  // the last one to let go may wait for peers
    own->shared.reset();
  }
  own->shared.~shared_ptr();
  PyTypeObject* const type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* rank(PyObject* object, void*) { return PyLong_FromLong(self(object).engine->rank()); }
PyObject* size(PyObject* object, void*) { return PyLong_FromLong(self(object).engine->size()); }
PyObject* name(PyObject* object, void*) {
  return PyUnicode_FromString(self(object).engine->name().c_str());
}
PyObject* timeout(PyObject* object, void*) {
  return PyFloat_FromDouble(std::chrono::duration<double>(self(object).engine->timeout()).count());
}
int setTimeout(PyObject* object, PyObject* value, void*) {
  return guarded([&] {
           if (value == nullptr) raise(PyExc_AttributeError, "a communicator has a timeout");
           const auto limit = duration(number(value, "timeout"));
           self(object).engine->setTimeout(limit);
           if (self(object).gpu) self(object).gpu->setTimeout(limit);
           return Py_None;
         }) == nullptr
             ? -1
             : 0;
}

PyObject* hosts(PyObject* object, PyObject*) {
  return guarded([&] {
    const std::vector<int> all = self(object).engine->hosts();
    Ref list = checked(PyList_New(0));
    for (const int host : all) {
      if (PyList_Append(list.get(), checked(PyLong_FromLong(host)).get()) != 0) throw PythonError();
    }
    return list.release();
  });
}

PyObject* barrier(PyObject* object, PyObject*) {
  return guarded([&] {
    Turn turn(self(object));
    self(object).throwIfBroken();
    Waiting hooks;
    self(object).engine->run({.kind = CollectiveKind::Barrier}, {}, &hooks);
    return Py_NewRef(Py_None);
  });
}

/// Bytes of a message, its peer, its tag.
PyObject* message(PyObject* object, PyObject* arguments, CollectiveKind kind) {
  return guarded([&] {
    Py_buffer buffer;
    int peer = 0, tag = 0;
    const bool receives = kind == CollectiveKind::Recv;
    if (!PyArg_ParseTuple(arguments, receives ? "w*ii" : "y*ii", &buffer, &peer, &tag)) {
      throw PythonError();
    }
    const std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> released(&buffer, PyBuffer_Release);
    Turn turn(self(object));
    Waiting hooks;
    Call call{.kind = kind, .root = peer, .tag = tag};
    call.count = static_cast<size_t>(buffer.len);
    (receives ? call.output : const_cast<void*&>(call.input)) = buffer.buf;
    self(object).engine->run(call, {}, &hooks);
    return Py_NewRef(Py_None);
  });
}
PyObject* send(PyObject* object, PyObject* arguments) {
  return message(object, arguments, CollectiveKind::Send);
}
PyObject* receive(PyObject* object, PyObject* arguments) {
  return message(object, arguments, CollectiveKind::Recv);
}

PyObject* abort(PyObject* object, PyObject* reason) {
  return guarded([&] {
    self(object).engine->abort(text(reason, "reason"));
    return Py_NewRef(Py_None);
  });
}
PyObject* isAborted(PyObject* object, PyObject*) {
  const Shared& shared = self(object);
  return PyBool_FromLong(shared.engine->isAborted() || (shared.gpu && shared.gpu->isAborted()));
}
PyObject* finalize(PyObject* object, PyObject*) {
  return guarded([&] {
    Turn turn(self(object));
    if (self(object).gpu) {
      Unlocked hooks;
      self(object).gpu->finalize(&hooks);
    }
    Waiting hooks;
    self(object).engine->finalize(&hooks);
    return Py_NewRef(Py_None);
  });
}

PyObject* gpu(PyObject* object, void*) {
  const auto& gpu = self(object).gpu;
  return gpu ? PyLong_FromLong(*gpu->gpu()) : Py_NewRef(Py_None);
}
PyObject* gpuName(PyObject* object, void*) {
  return PyUnicode_FromString(gpuNameOf(self(object)).c_str());
}
PyObject* useGpu(PyObject* object, PyObject* device) {
  return guarded([&] {
    Turn turn(self(object));
    self(object).useGpu(static_cast<int>(integer(device, "device")));
    return Py_NewRef(Py_None);
  });
}

PyObject* find(PyObject*, PyObject* arguments) {
  return guarded([&] {
    unsigned long long token = 0;
    if (!PyArg_ParseTuple(arguments, "K", &token)) throw PythonError();
    auto found = ctran::api::findCommunicator(token);
    return found ? newCommunicator(std::move(found)) : Py_NewRef(Py_None);
  });
}

PyObject* alone(PyObject*, PyObject* name) {
  return guarded([&] {
    ctran::api::CommunicatorOptions options;
    options.name = text(name, "name");
    return newCommunicator(ctran::api::Communicator::create(options));
  });
}

PyGetSetDef properties[] = {
    {"rank", rank, nullptr, "Of this process.", nullptr},
    {"size", size, nullptr, "How many ranks there are.", nullptr},
    {"name", name, nullptr, "For people, and for torchcomms' tools.", nullptr},
    {"timeout", timeout, setTimeout, "Of every operation, in seconds.", nullptr},
    {"gpu", gpu, nullptr, "The GPU of this rank, once one is used; else None.", nullptr},
    {"gpu_name", gpuName, nullptr, "The name of the communicator of the GPUs.", nullptr},
    {},
};

PyMethodDef methods[] = {
    {"hosts", hosts, METH_NOARGS, "The number of each rank's host."},
    {"barrier", barrier, METH_NOARGS, "Waits until all ranks have called it."},
    {"send", send, METH_VARARGS, "send(buffer, peer, tag)"},
    {"recv", receive, METH_VARARGS, "recv(buffer, peer, tag)"},
    {"use_gpu", useGpu, METH_O, "use_gpu(device): the GPU of this rank from now on. Collective."},
    {"abort", abort, METH_O, "Ends every blocked and every later operation of all ranks."},
    {"is_aborted", isAborted, METH_NOARGS, "Whether it is broken."},
    {"finalize", finalize, METH_NOARGS, "Leaves; later calls are errors."},
    {},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("A group of ranks. mscclpp.CommGroup makes it.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_getset, properties},
    {Py_tp_methods, methods},
    {},
};

PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CommunicatorObject, weakReferences), READONLY,
     nullptr},
    {},
};

PyMethodDef functions[] = {
    {"find", find, METH_VARARGS, "find(token): a communicator of this process, or None"},
    {"alone", alone, METH_O, "alone(name): a communicator of one rank"},
    {},
};

}  // namespace

PyObject* newCommunicator(std::shared_ptr<ctran::api::Communicator> engine) {
  Ref object = checked(type->tp_alloc(type, 0));
  auto* const own = reinterpret_cast<CommunicatorObject*>(object.get());
  new (&own->shared) std::shared_ptr<Shared>(std::make_shared<Shared>(std::move(engine)));
  return object.release();
}

std::string gpuNameOf(const Shared& shared) { return shared.engine->name() + "+gpus"; }

void Shared::useGpu(int device) {
  if (gpu && *gpu->gpu() != device) {
    raise(PyExc_ValueError, "the communicator works on GPU " + std::to_string(*gpu->gpu()) +
                                " of this rank, not on GPU " + std::to_string(device) +
                                "; make another CommGroup for that");
  }
  if (gpu) return;
  ctran::api::GpuOptions options;
  options.device = device;
  std::shared_ptr<ctran::api::Communicator> made;
  {
    Unlocked hooks;
    made = engine->splitForGpus(gpuNameOf(*this), options, &hooks);
  }
  gpu = std::move(made);
}

const std::shared_ptr<Shared>& sharedOf(PyObject* object) {
  if (!Py_IS_TYPE(object, type)) {
    raise(PyExc_TypeError, std::string("comm must be a Communicator, as CommGroup.communicator is, "
                                       "not ") +
                               Py_TYPE(object)->tp_name);
  }
  return reinterpret_cast<CommunicatorObject*>(object)->shared;
}

bool addCommunicator(PyObject* module) {
  std::vector<PyType_Slot> all(std::begin(slots), std::end(slots) - 1);
  all.push_back({Py_tp_members, members});
  all.push_back({});
  PyType_Spec spec{"mscclpp._runtime.Communicator", sizeof(CommunicatorObject), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, all.data()};
  type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return type != nullptr && PyModule_AddFunctions(module, functions) == 0 &&
         PyModule_AddType(module, type) == 0;
}

ctran::DataType dataType(int64_t number) {
  using enum ctran::DataType;
  static constexpr std::array kTypes{Int32,      UInt32,  Float16, Float32,   BFloat16,  Float8E4M3,
                                     Float8E5M2, UInt8,   Int8,    Int16,     Int64,     UInt16,
                                     UInt64,     Float64, Bool,    Complex64, Complex128};
  if (number < 0 || number >= static_cast<int64_t>(kTypes.size())) {
    raise(PyExc_ValueError, "dtype must be one of mscclpp.DataType, not " + std::to_string(number));
  }
  return kTypes[number];
}

ctran::ReduceKind reduceKind(int64_t number) {
  using enum ctran::ReduceKind;
  static constexpr std::array kKinds{Sum, Product, Max, Min, Avg, BitAnd, BitOr, BitXor};
  constexpr int64_t kNop = 255;
  if (number == kNop) return Sum;
  if (number < 0 || number >= static_cast<int64_t>(kKinds.size())) {
    raise(PyExc_ValueError, "op must be one of mscclpp.ReduceOp, not " + std::to_string(number));
  }
  return kKinds[number];
}

std::chrono::nanoseconds duration(double seconds) {
  if (!(seconds > 0) || seconds > 1e9) {
    raise(PyExc_ValueError,
          "a timeout is a positive number of seconds, not " + std::to_string(seconds));
  }
  return std::chrono::nanoseconds(std::llround(seconds * 1e9));
}

}  // namespace mscclpp::python
