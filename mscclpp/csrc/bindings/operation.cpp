// What an algorithm has prepared for a communicator: the path of every execute.
#include <algorithm>
#include <cstring>
#include <optional>

#include "ctran/base/overlap.h"
#include "mscclpp/csrc/bindings/communicator.h"

namespace mscclpp::python {
namespace {

using ctran::CollectiveKind;
using ctran::api::Call;

constexpr long kSuccess = 0, kInvalidArgument = 4;  // mscclpp.CommResult
constexpr long kNotOnGpus = -1;                     // mscclpp.algorithm.NOT_ON_GPUS

struct State {
  std::weak_ptr<Shared> shared;
  CollectiveKind kind{};
  ctran::api::Hints hints;
  std::shared_ptr<const ctran::CallHints> prepared;
  int ranks = 1;
  /// Of a program that promises no result: blocks in each buffer, and the plan that has to serve.
  int inputs = 0, outputs = 0;
  std::string plan = {};
  bool onGpus = false;                                       ///< whether it is prepared for them
  std::shared_ptr<const ctran::CallHints> preparedGpu = {};  ///< for that; null without hints
};

struct OperationObject {
  PyObject_HEAD State state;
};

PyTypeObject* type = nullptr;

State& self(PyObject* object) { return reinterpret_cast<OperationObject*>(object)->state; }

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

/// Elements of a block of a program that promises no result.
size_t countOfOpen(const State& state, size_t input, size_t output, ctran::DataType type) {
  const auto inputs = static_cast<size_t>(state.inputs);
  const auto outputs = static_cast<size_t>(state.outputs);
  const size_t block = inputs != 0 ? input / inputs : output / outputs;
  if (block * inputs != input || block * outputs != output || block % sizeOf(type) != 0) {
    raise(PyExc_ValueError, "input_size is " + std::to_string(input) + " and output_size " +
                                std::to_string(output) + " bytes, but the program has " +
                                std::to_string(inputs) + " and " + std::to_string(outputs) +
                                " chunks of them, which are whole elements of one size");
  }
  return block / sizeOf(type);
}

/// Of the engine's call; raises ValueError where the sizes do not belong together.
size_t countOf(const State& state, size_t input, size_t output, ctran::DataType type) {
  if (!state.plan.empty()) return countOfOpen(state, input, output, type);
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

ctran::api::Hints hintsOf(PyObject* dict) {
  ctran::api::Hints hints;
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value);) {
    hints[text(key, "a hint's name")] = text(value, "a hint");
  }
  return hints;
}

/// Of a kernel: more than it can have is as many as it can have.
uint32_t atMostBlocks(int64_t number) {
  return static_cast<uint32_t>(std::clamp<int64_t>(number, 0, 1 << 20));
}

/// A buffer that was given as a number.
void* pointer(int64_t address, int64_t bytes, const char* what) {
  if (bytes < 0) raise(PyExc_ValueError, std::string(what) + "_size must not be negative");
  if (address < 0 || (address == 0 && bytes != 0)) {
    raise(PyExc_ValueError, std::string(what) + "_buffer is " +
                                (address == 0 ? "null" : std::to_string(address)) +
                                ", which is no address");
  }
  return reinterpret_cast<void*>(address);
}

/// Of a broadcast, whose input the engine does not know; that of others is checked by the engine.
void checkApart(const Call& call) {
  const size_t bytes = call.count * sizeOf(call.type);
  const ctran::MemoryRange input{call.input, bytes}, output{call.output, bytes};
  if (call.input == call.output || !overlap(input, output)) return;
  raise(PyExc_ValueError, "broadcast: the input, " + nameOf(input) + ", overlaps the output, " +
                              nameOf(output) + "; in place, both begin at the same address");
}

/// Of a program that promises no result.
void checkOpen(const Call& call, size_t inputBytes, size_t outputBytes) {
  const ctran::MemoryRange input{call.input, inputBytes}, output{call.output, outputBytes};
  if ((call.input == call.output && inputBytes == outputBytes) || !overlap(input, output)) return;
  raise(PyExc_ValueError, "the input, " + nameOf(input) + ", overlaps the output, " +
                              nameOf(output) + "; in place, they are the same");
}

/// No other algorithm does what a program does that promises no result.
void checkServes(const State& state, const Call& call, const ctran::api::Communicator& engine) {
  const auto found =
      engine.explain(call.kind, call.count * sizeOf(call.type), call.type, state.hints);
  if (found.algorithm == state.plan) return;
  raise(PyExc_RuntimeError, "'" + state.plan + "' cannot serve this call of " + engine.name() +
                                ": it spans hosts, or has more than the engine executes");
}

/// The GPU that has the buffers; none if the host has them.
std::optional<int> gpuOf(const Call& call, int64_t inputBytes, int64_t outputBytes) {
  const void* const first = inputBytes != 0 ? call.input : call.output;
  if (inputBytes == 0 && outputBytes == 0) return std::nullopt;  // nothing is moved
  const auto gpu = ctran::api::gpuOf(first);
  if (outputBytes == 0 || call.output == first) return gpu;
  const auto other = ctran::api::gpuOf(call.output);
  if (gpu == other) return gpu;
  const auto where = [](const std::optional<int>& one) {
    return one ? "on GPU " + std::to_string(*one) : std::string("in the host's memory");
  };
  raise(PyExc_ValueError, "input_buffer is " + where(gpu) + " and output_buffer " + where(other) +
                              "; they have to be in one place");
}

/// Whether the output first gets the input: in the engine's broadcasts the root has what it sends
/// where the others receive.
bool copiesInput(const Call& call, const Shared& shared) {
  return call.kind == CollectiveKind::Broadcast && call.root == shared.engine->rank() &&
         call.input != call.output;
}

long enqueue(const State& state, Shared& shared, const Call& call, int device, int64_t stream,
             const ctran::api::EnqueueOptions& options) {
  if (!shared.gpu || !state.onGpus) return kNotOnGpus;
  if (*shared.gpu->gpu() != device) {
    raise(PyExc_ValueError, "the buffers are on GPU " + std::to_string(device) +
                                ", but the communicator works on GPU " +
                                std::to_string(*shared.gpu->gpu()) + " of this rank");
  }
  Turn turn(shared);
  Unlocked hooks;
  if (copiesInput(call, shared)) {
    ctran::api::copyOn(reinterpret_cast<ctran::api::GpuStream>(stream), device, call.output,
                       call.input, call.count * sizeOf(call.type));
  }
  shared.gpu->enqueue(call, reinterpret_cast<ctran::api::GpuStream>(stream), options, &hooks);
  return kSuccess;
}

/// run(input, output, input_size, output_size, dtype, op, root
///     [, stream, blocks, threads, symmetric]) -> code
PyObject* run(PyObject* object, PyObject* const* given, Py_ssize_t count) {
  return guarded([&] {
    if (count != 7 && count != 11) raise(PyExc_TypeError, "run takes 7 or 11 arguments");
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
    if (call.kind == CollectiveKind::Broadcast) checkApart(call);
    if (!state.plan.empty()) {
      checkOpen(call, static_cast<size_t>(inputBytes), static_cast<size_t>(outputBytes));
    }
    const int64_t stream = count > 7 ? integer(given[7], "stream") : 0;
    const auto shared = held(state);
    if (const auto device = gpuOf(call, inputBytes, outputBytes)) {
      call.prepared = state.preparedGpu;
      ctran::api::EnqueueOptions options;
      if (count > 7) {
        options.blocks = atMostBlocks(integer(given[8], "nblocks"));
        options.threads = atMostBlocks(integer(given[9], "nthreads_per_block"));
        options.symmetric = given[10] == Py_True;
      }
      return PyLong_FromLong(enqueue(state, *shared, call, *device, stream, options));
    }
    if (stream != 0 && inputBytes + outputBytes != 0) {
      raise(PyExc_ValueError,
            "there is no stream " + std::to_string(stream) + ": on the CPU, stream is 0");
    }
    Turn turn(*shared);
    shared->throwIfBroken();
    if (!state.plan.empty()) checkServes(state, call, *shared->engine);
    if (copiesInput(call, *shared)) {
      std::memcpy(call.output, call.input, call.count * sizeOf(call.type));
    }
    Waiting hooks;
    shared->engine->run(call, {}, &hooks);
    return PyLong_FromLong(kSuccess);
  });
}

/// use_gpu(hints, address, stream): prepares it for memory of the GPU that has the address
PyObject* useGpu(PyObject* object, PyObject* arguments) {
  return guarded([&] {
    PyObject *hints = nullptr, *address = nullptr, *stream = nullptr;
    if (!PyArg_ParseTuple(arguments, "O!OO", &PyDict_Type, &hints, &address, &stream)) {
      throw PythonError();
    }
    State& state = self(object);
    const auto shared = held(state);
    const auto device =
        ctran::api::gpuOf(reinterpret_cast<void*>(integer(address, "input_buffer")));
    if (!device) raise(PyExc_ValueError, "the buffer is in no GPU's memory");
    Turn turn(*shared);
    if (!shared->gpu && ctran::api::isCapturing(
                            reinterpret_cast<ctran::api::GpuStream>(integer(stream, "stream")))) {
      raise(PyExc_RuntimeError,
            "the first use of a GPU by this communicator cannot be captured; execute something "
            "before the capture, or call CommGroup.use_gpu()");
    }
    shared->useGpu(*device);
    const ctran::api::Hints given = hintsOf(hints);
    state.preparedGpu = given.empty() ? nullptr : shared->gpu->prepare(given);
    state.onGpus = true;
    return Py_NewRef(Py_None);
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

/// explain(bytes, dtype) -> JSON; of memory of GPUs if it is prepared for them
PyObject* explain(PyObject* object, PyObject* arguments) {
  return guarded([&] {
    long long bytes = 0;
    int number = 0;
    if (!PyArg_ParseTuple(arguments, "Li", &bytes, &number)) throw PythonError();
    if (bytes < 0) raise(PyExc_ValueError, "bytes must not be negative");
    const State& state = self(object);
    const auto shared = held(state);
    const auto size = static_cast<size_t>(bytes);
    const ctran::DataType type = dataType(number);
    const ctran::api::Explanation found =
        state.onGpus ? shared->gpu->explain(state.kind, size, type, state.preparedGpu)
                     : shared->engine->explain(state.kind, size, type, state.hints);
    return PyUnicode_FromString(found.json.c_str());
  });
}

/// prepare(communicator, kind, hints[, inputs, outputs, plan]) -> Operation
PyObject* prepare(PyObject*, PyObject* arguments) {
  return guarded([&] {
    PyObject *communicator = nullptr, *hints = nullptr;
    const char *name = nullptr, *plan = "";
    int inputs = 0, outputs = 0;
    if (!PyArg_ParseTuple(arguments, "OsO!|iis", &communicator, &name, &PyDict_Type, &hints,
                          &inputs, &outputs, &plan)) {
      throw PythonError();
    }
    const auto& shared = sharedOf(communicator);
    const auto kind = ctran::collectiveKindNamed(name);
    if (!kind) raise(PyExc_ValueError, "there is no collective '" + std::string(name) + "'");
    const ctran::api::Hints given = hintsOf(hints);
    State state{shared, *kind,   given, shared->engine->prepare(given), shared->engine->size(),
                inputs, outputs, plan};
    Ref object = checked(type->tp_alloc(type, 0));
    new (&reinterpret_cast<OperationObject*>(object.get())->state) State(std::move(state));
    return object.release();
  });
}

PyMethodDef methods[] = {
    {"run", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run)), METH_FASTCALL,
     "run(input, output, input_size, output_size, dtype, op, root): 0, or the code of CommResult "
     "if there is no such reduction; on GPUs also stream, blocks, threads and symmetric; -1: "
     "use_gpu "
     "first"},
    {"use_gpu", useGpu, METH_VARARGS,
     "use_gpu(hints, address, stream): prepares it for memory of the GPU that has the address"},
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
    {"prepare", prepare, METH_VARARGS,
     "prepare(communicator, collective, hints): an Operation; of a program that promises no "
     "result, "
     "also its chunks of input and output, and the plan"},
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
