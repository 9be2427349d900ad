// What an algorithm has prepared for a communicator: the path of every execute.
#include "mscclpp/csrc/bindings/communicator.h"

namespace mscclpp::python {
namespace {

using ctran::CollectiveKind;
using ctran::api::Call;

constexpr long kSuccess = 0, kInvalidArgument = 4;  // mscclpp.CommResult

struct State {
  std::weak_ptr<Shared> shared;
  CollectiveKind kind{};
  ctran::api::Hints hints;
  std::shared_ptr<const ctran::CallHints> prepared;
  int ranks = 1;
};

struct OperationObject {
  PyObject_HEAD State state;
};

PyTypeObject* type = nullptr;

const State& self(PyObject* object) { return reinterpret_cast<OperationObject*>(object)->state; }

void destroy(PyObject* object) {
  reinterpret_cast<OperationObject*>(object)->state.~State();
  PyTypeObject* const type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

std::shared_ptr<Shared> held(const State& state) {
  auto shared = state.shared.lock();
  if (!shared) raise(PyExc_RuntimeError, "the communicator is no more");
  return shared;
}

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce || kind == CollectiveKind::ReduceScatter;
}

/// Of the engine's call; raises ValueError where the sizes do not belong together.
size_t countOf(const State& state, size_t input, size_t output, ctran::DataType type) {
  const size_t ranks = static_cast<size_t>(state.ranks), element = sizeOf(type);
  const auto fail = [&](const std::string& why) {
    raise(PyExc_ValueError, "input_size is " + std::to_string(input) + " and output_size " +
                                std::to_string(output) + " bytes, but " + why);
  };
  size_t block = input;
  switch (state.kind) {
    case CollectiveKind::AllGather:
      if (input > output / ranks || input * ranks != output) {
        fail("the output of " + std::to_string(ranks) + " ranks is so many inputs");
      }
      break;
    case CollectiveKind::ReduceScatter:
      if (output > input / ranks || output * ranks != input) {
        fail("the input of " + std::to_string(ranks) + " ranks is so many outputs");
      }
      block = output;
      break;
    case CollectiveKind::AllToAll:
      if (input != output || input % ranks != 0) {
        fail("both have one block for each of " + std::to_string(ranks) + " ranks");
      }
      block = input / ranks;
      break;
    default:
      if (input != output) fail("they must be the same");
  }
  if (block % element != 0) {
    fail("an element of " + std::string(nameOf(type)) + " has " + std::to_string(element));
  }
  return block / element;
}

/// A buffer that was given as a number.
void* pointer(int64_t address, int64_t bytes, const char* what) {
  if (bytes < 0) raise(PyExc_ValueError, std::string(what) + "_size must not be negative");
  if (address == 0 && bytes != 0) {
    raise(PyExc_ValueError, std::string(what) + "_buffer is null");
  }
  return reinterpret_cast<void*>(address);
}

/// run(input, output, input_size, output_size, dtype, op, root) -> code
PyObject* run(PyObject* object, PyObject* const* given, Py_ssize_t count) {
  return guarded([&] {
    if (count != 7) raise(PyExc_TypeError, "run takes 7 arguments");
    const State& state = self(object);
    const int64_t inputBytes = integer(given[2], "input_size");
    const int64_t outputBytes = integer(given[3], "output_size");
    Call call{.kind = state.kind};
    call.input = pointer(integer(given[0], "input_buffer"), inputBytes, "input");
    call.output = pointer(integer(given[1], "output_buffer"), outputBytes, "output");
    call.type = dataType(integer(given[4], "dtype"));
    call.op.kind = reduceKind(integer(given[5], "op"));
    call.root = static_cast<int>(integer(given[6], "root"));
    call.count = countOf(state, static_cast<size_t>(inputBytes), static_cast<size_t>(outputBytes),
                         call.type);
    call.prepared = state.prepared;
    if (reduces(state.kind)) {
      if (!isSupported(call.op.kind, call.type)) return PyLong_FromLong(kInvalidArgument);
    }
    if (call.kind == CollectiveKind::Broadcast && call.input != call.output) {
      raise(PyExc_ValueError, "a broadcast has one buffer, as input and as output");
    }
    const auto shared = held(state);
    Turn turn(*shared);
    Waiting hooks;
    shared->engine->run(call, {}, &hooks);
    return PyLong_FromLong(kSuccess);
  });
}

/// why_not(dtype, op) -> str
PyObject* whyNot(PyObject*, PyObject* arguments) {
  return guarded([&] {
    int type = 0, op = 0;
    if (!PyArg_ParseTuple(arguments, "ii", &type, &op)) throw PythonError();
    const std::string why = whyUnsupported(reduceKind(op), dataType(type));
    return PyUnicode_FromString(why.c_str());
  });
}

/// explain(bytes, dtype) -> JSON
PyObject* explain(PyObject* object, PyObject* arguments) {
  return guarded([&] {
    long long bytes = 0;
    int type = 0;
    if (!PyArg_ParseTuple(arguments, "Li", &bytes, &type)) throw PythonError();
    if (bytes < 0) raise(PyExc_ValueError, "bytes must not be negative");
    const State& state = self(object);
    const auto shared = held(state);
    ctran::api::Explanation found = shared->engine->explain(state.kind, static_cast<size_t>(bytes),
                                                            dataType(type), state.hints);
    return PyUnicode_FromString(found.json.c_str());
  });
}

/// prepare(communicator, kind, hints) -> Operation
PyObject* prepare(PyObject*, PyObject* arguments) {
  return guarded([&] {
    PyObject *communicator = nullptr, *hints = nullptr;
    const char* name = nullptr;
    if (!PyArg_ParseTuple(arguments, "OsO!", &communicator, &name, &PyDict_Type, &hints)) {
      throw PythonError();
    }
    const auto& shared = sharedOf(communicator);
    const auto kind = ctran::collectiveKindNamed(name);
    if (!kind) raise(PyExc_ValueError, "there is no collective '" + std::string(name) + "'");
    ctran::api::Hints given;
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(hints, &at, &key, &value);) {
      given[text(key, "a hint's name")] = text(value, "a hint");
    }
    State state{shared, *kind, given, shared->engine->prepare(given), shared->engine->size()};
    Ref object = checked(type->tp_alloc(type, 0));
    new (&reinterpret_cast<OperationObject*>(object.get())->state) State(std::move(state));
    return object.release();
  });
}

PyMethodDef methods[] = {
    {"run", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run)), METH_FASTCALL,
     "run(input, output, input_size, output_size, dtype, op, root): 0, or the code of CommResult "
     "if there is no such reduction"},
    {"explain", explain, METH_VARARGS, "explain(bytes, dtype): what would serve it, as JSON"},
    {},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("What an algorithm has prepared for a communicator.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_methods, methods},
    {},
};

PyMethodDef functions[] = {
    {"prepare", prepare, METH_VARARGS, "prepare(communicator, collective, hints): an Operation"},
    {"why_not", whyNot, METH_VARARGS, "why_not(dtype, op): why there is no such reduction, or ''"},
    {},
};

}  // namespace

bool addOperation(PyObject* module) {
  PyType_Spec spec{"mscclpp._runtime.Operation", sizeof(OperationObject), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return type != nullptr && PyModule_AddFunctions(module, functions) == 0 &&
         PyModule_AddType(module, type) == 0;
}

}  // namespace mscclpp::python
