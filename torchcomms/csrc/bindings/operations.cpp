#include "torchcomms/csrc/bindings/arguments.hpp"
#include "torchcomms/csrc/bindings/bindings.hpp"
#include "torchcomms/csrc/bindings/errors.hpp"

namespace py = pybind11;

// Each operation is a vectorcall method: pybind11's dispatch alone costs more than a small
// all-reduce between processes.

namespace torch::comms {

namespace {

PyTypeObject* commClass = nullptr;

TorchComm& commOf(PyObject* self) {
  if (auto* comm = exactly<TorchComm>(self, commClass)) [[likely]]
    return *comm;
  return py::cast<TorchComm&>(py::handle(self));
}

/// Parses, calls `operation(comm, call)`, wraps the work it returns.
template <typename Operation>
PyObject* run(const Signature& signature, PyObject* self, PyObject* const* args, Py_ssize_t count,
              PyObject* names, Operation operation) noexcept {
  try {
    const CallArguments call(signature, args, count, names);
    return wrapWork(operation(commOf(self), call));
  } catch (...) {
    setPythonError(std::current_exception(), signature.function());
    return nullptr;
  }
}

using Args = PyObject* const*;

PyObject* send(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("send", {{"tensor"}, {"dst"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.send(c.tensor(0), c.rank(1, comm.getSize()), c.asyncOp(), c.options<SendOptions>());
  });
}

PyObject* recv(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("recv", {{"tensor"}, {"src"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.recv(c.tensor(0), c.rank(1, comm.getSize()), c.asyncOp(), c.options<RecvOptions>());
  });
}

PyObject* broadcast(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("broadcast", {{"tensor"}, {"root"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.broadcast(c.tensor(0), c.rank(1, comm.getSize()), c.asyncOp(),
                          c.options<BroadcastOptions>());
  });
}

PyObject* allReduce(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("all_reduce", {{"tensor"}, {"op"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.all_reduce(c.tensor(0), c.reduceOp(1), c.asyncOp(), c.options<AllReduceOptions>());
  });
}

PyObject* reduce(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("reduce", {{"tensor"}, {"root"}, {"op"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.reduce(c.tensor(0), c.rank(1, comm.getSize()), c.reduceOp(2), c.asyncOp(),
                       c.options<ReduceOptions>());
  });
}

PyObject* allGather(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("all_gather", {{"tensor_list"}, {"tensor"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.all_gather(c.tensors(0), c.tensor(1), c.asyncOp(), c.options<AllGatherOptions>());
  });
}

PyObject* allGatherV(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("all_gather_v", {{"tensor_list"}, {"tensor"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.all_gather_v(c.tensors(0), c.tensor(1), c.asyncOp(), c.options<AllGatherOptions>());
  });
}

PyObject* allGatherSingle(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("all_gather_single", {{"output"}, {"input"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.all_gather_single(c.tensor(0), c.tensor(1), c.asyncOp(),
                                  c.options<AllGatherSingleOptions>());
  });
}

PyObject* reduceScatter(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("reduce_scatter", {{"output"}, {"input_list"}, {"op"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.reduce_scatter(c.tensor(0), c.tensors(1), c.reduceOp(2), c.asyncOp(),
                               c.options<ReduceScatterOptions>());
  });
}

PyObject* reduceScatterV(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("reduce_scatter_v", {{"output"}, {"input_list"}, {"op"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.reduce_scatter_v(c.tensor(0), c.tensors(1), c.reduceOp(2), c.asyncOp(),
                                 c.options<ReduceScatterOptions>());
  });
}

PyObject* reduceScatterSingle(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("reduce_scatter_single", {{"output"}, {"input"}, {"op"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.reduce_scatter_single(c.tensor(0), c.tensor(1), c.reduceOp(2), c.asyncOp(),
                                      c.options<ReduceScatterSingleOptions>());
  });
}

PyObject* reduceScatterQuantized(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature(
      "reduce_scatter_quantized",
      {{"output"}, {"input"}, {"op"}, {.name = "seed", .isOptional = true}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.reduce_scatter_quantized(c.tensor(0), c.tensor(1), c.reduceOp(2), c.tensorOrNone(3),
                                         c.asyncOp(), c.options<ReduceScatterSingleOptions>());
  });
}

PyObject* allToAllSingle(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("all_to_all_single", {{"output"}, {"input"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.all_to_all_single(c.tensor(0), c.tensor(1), c.asyncOp(),
                                  c.options<AllToAllSingleOptions>());
  });
}

PyObject* allToAllVSingle(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("all_to_all_v_single", {{"output"},
                                                           {"input"},
                                                           {"output_split_sizes", "output_splits"},
                                                           {"input_split_sizes", "input_splits"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.all_to_all_v_single(c.tensor(0), c.tensor(1), c.sizes(2), c.sizes(3), c.asyncOp(),
                                    c.options<AllToAllvSingleOptions>());
  });
}

PyObject* allToAll(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature(
      "all_to_all", {{"output_tensor_list", "output_list"}, {"input_tensor_list", "input_list"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.all_to_all(c.tensors(0), c.tensors(1), c.asyncOp(), c.options<AllToAllOptions>());
  });
}

PyObject* allToAllVDynamic(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature(
      "all_to_all_v_dynamic",
      {{"output"}, {"input"}, {"output_split_sizes"}, {"input_split_sizes"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.all_to_all_v_dynamic(c.tensor(0), c.tensor(1), c.tensor(2), c.tensor(3),
                                     c.asyncOp(), c.options<AllToAllvSingleOptions>());
  });
}

PyObject* deviceAllToAllV(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("device_alltoallv_single",
                                   {{"output"},
                                    {"input"},
                                    {"output_split_sizes", "output_split_sizes_gpu"},
                                    {"input_split_sizes", "input_split_sizes_gpu"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.device_alltoallv_single(c.tensor(0), c.tensor(1), c.tensor(2), c.tensor(3),
                                        c.asyncOp(), c.options<AllToAllvSingleOptions>());
  });
}

PyObject* dynamicDispatch(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("alltoallv_dynamic_dispatch", {{"output_tensor_list"},
                                                                  {"output_chunk_sizes_per_rank"},
                                                                  {"input_tensor"},
                                                                  {"input_chunk_sizes"},
                                                                  {"input_chunk_indices"},
                                                                  {"input_chunk_count_per_rank"},
                                                                  {"hidden_dim"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.alltoallv_dynamic_dispatch(c.tensors(0), c.tensor(1), c.tensor(2), c.tensor(3),
                                           c.tensor(4), c.tensor(5), c.integer(6), c.asyncOp(),
                                           c.options<AllToAllvSingleOptions>());
  });
}

PyObject* dynamicCombine(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("alltoallv_dynamic_combine", {{"output_tensor"},
                                                                 {"input_tensor"},
                                                                 {"input_chunk_sizes"},
                                                                 {"input_chunk_indices"},
                                                                 {"input_chunk_count_per_rank"},
                                                                 {"hidden_dim"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.alltoallv_dynamic_combine(c.tensor(0), c.tensor(1), c.tensor(2), c.tensor(3),
                                          c.tensor(4), c.integer(5), c.asyncOp(),
                                          c.options<AllToAllvSingleOptions>());
  });
}

PyObject* dedup(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature(
      "all_to_all_v_dedup",
      {{"output"}, {"input"}, {"output_split_sizes"}, {"input_indices"}, {"input_split_sizes"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.all_to_all_v_dedup(c.tensor(0), c.tensor(1), c.tensor(2), c.tensor(3), c.tensor(4),
                                   c.asyncOp(), c.options<AllToAllvSingleOptions>());
  });
}

PyObject* dedupCombine(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("all_to_all_v_dedup_combine", {{"output"},
                                                                  {"input"},
                                                                  {"weights"},
                                                                  {"input_split_sizes"},
                                                                  {"output_indices"},
                                                                  {"output_split_sizes"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.all_to_all_v_dedup_combine(c.tensor(0), c.tensor(1), c.tensorOrNone(2), c.tensor(3),
                                           c.tensor(4), c.tensor(5), c.asyncOp(),
                                           c.options<AllToAllvSingleOptions>());
  });
}

PyObject* barrier(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("barrier", {});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.barrier(c.asyncOp(), c.options<BarrierOptions>());
  });
}

PyObject* scatter(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature(
      "scatter", {{"output_tensor", "output"}, {"input_tensor_list", "input_list"}, {"root"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.scatter(c.tensor(0), c.tensorsOrNone(1), c.rank(2, comm.getSize()), c.asyncOp(),
                        c.options<ScatterOptions>());
  });
}

PyObject* gather(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature(
      "gather", {{"output_tensor_list", "output_list"}, {"input_tensor", "input"}, {"root"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.gather(c.tensorsOrNone(0), c.tensor(1), c.rank(2, comm.getSize()), c.asyncOp(),
                       c.options<GatherOptions>());
  });
}

PyObject* gatherSingle(PyObject* self, Args args, Py_ssize_t count, PyObject* names) {
  static const Signature signature("gather_single", {{"output"}, {"input"}, {"root"}});
  return run(signature, self, args, count, names, [](TorchComm& comm, const CallArguments& c) {
    return comm.gather_single(c.tensor(0), c.tensor(1), c.rank(2, comm.getSize()), c.asyncOp(),
                              c.options<GatherSingleOptions>());
  });
}

#define TAIL "async_op, hints=None, timeout=None, *, options=None)\n--\n\n"
#define OPERATION(name, function, parameters, doc)                                \
  {                                                                               \
    name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&function)), \
        METH_FASTCALL | METH_KEYWORDS, name "($self, /, " parameters TAIL doc     \
  }

PyMethodDef operations[] = {
    OPERATION("send", send, "tensor, dst, ", "Sends `tensor` to rank `dst`."),
    OPERATION("recv", recv, "tensor, src, ", "Receives into `tensor` what rank `src` sends."),
    OPERATION("broadcast", broadcast, "tensor, root, ",
              "`tensor` of rank `root` becomes that of every rank."),
    OPERATION("all_reduce", allReduce, "tensor, op, ",
              "`tensor` becomes the reduction over all ranks, the same bits on each."),
    OPERATION("reduce", reduce, "tensor, root, op, ",
              "At rank `root`, `tensor` becomes the reduction over all ranks; elsewhere it is only "
              "read."),
    OPERATION("all_gather", allGather, "tensor_list, tensor, ",
              "`tensor_list[r]` becomes `tensor` of rank r; all have the same size."),
    OPERATION("all_gather_v", allGatherV, "tensor_list, tensor, ",
              "`tensor_list[r]` becomes `tensor` of rank r; sizes may differ from rank to rank."),
    OPERATION("all_gather_single", allGatherSingle, "output, input, ",
              "Part r of `output` becomes `input` of rank r. `output` has comm_size times the "
              "elements; in place, `input` is part `rank` of it."),
    OPERATION("reduce_scatter", reduceScatter, "output, input_list, op, ",
              "`output` becomes the reduction over all ranks of their `input_list[rank]`."),
    OPERATION("reduce_scatter_v", reduceScatterV, "output, input_list, op, ",
              "As reduce_scatter; sizes may differ from rank to rank."),
    OPERATION("reduce_scatter_single", reduceScatterSingle, "output, input, op, ",
              "`output` becomes the reduction over all ranks of part `rank` of their `input`, "
              "which has comm_size times the elements."),
    OPERATION(
        "reduce_scatter_quantized", reduceScatterQuantized, "output, input, op, seed, ",
        "As reduce_scatter_single, a SUM or AVG of float32 tensors, but what ranks send each "
        "other is bfloat16, rounded up or down at random so that its expected value is what "
        "it was: half the bytes. The same `seed`, an int64 tensor of one element on the "
        "communicator's device or on the CPU, gives the same bits; ranks may pass different "
        "ones. None, or nothing: drawn at the call from torch's generator of the CPU. Backends "
        "ctran and ncclx, on GPUs."),
    OPERATION("all_to_all_single", allToAllSingle, "output, input, ",
              "Part r of `output` becomes part `rank` of `input` of rank r."),
    OPERATION("all_to_all_v_single", allToAllVSingle,
              "output, input, output_split_sizes, input_split_sizes, ",
              "As all_to_all_single with parts of given sizes, in rows of dimension 0. Also spelt "
              "`output_splits`, `input_splits`."),
    OPERATION("all_to_all", allToAll, "output_tensor_list, input_tensor_list, ",
              "`output_tensor_list[r]` becomes `input_tensor_list[rank]` of rank r. Also spelt "
              "`output_list`, `input_list`."),
    OPERATION("all_to_all_v_dynamic", allToAllVDynamic,
              "output, input, output_split_sizes, input_split_sizes, ",
              "As all_to_all_v_single, where only the senders know the sizes: "
              "`output_split_sizes`, an int64 tensor, becomes the rows that came from each rank."),
    OPERATION(
        "device_alltoallv_single", deviceAllToAllV,
        "output, input, output_split_sizes, input_split_sizes, ",
        "As all_to_all_v_single, with sizes in int64 tensors that are read when it starts. Also "
        "spelt `output_split_sizes_gpu`, `input_split_sizes_gpu`."),
    OPERATION("alltoallv_dynamic_dispatch", dynamicDispatch,
              "output_tensor_list, output_chunk_sizes_per_rank, input_tensor, input_chunk_sizes, "
              "input_chunk_indices, input_chunk_count_per_rank, hidden_dim, ",
              "Sends each rank the chunks of `input_tensor` that are listed for it."),
    OPERATION("alltoallv_dynamic_combine", dynamicCombine,
              "output_tensor, input_tensor, input_chunk_sizes, input_chunk_indices, "
              "input_chunk_count_per_rank, hidden_dim, ",
              "As alltoallv_dynamic_dispatch, with all that comes in one tensor."),
    OPERATION("all_to_all_v_dedup", dedup,
              "output, input, output_split_sizes, input_indices, input_split_sizes, ",
              "As all_to_all_v_dynamic, of listed rows; each crosses to another host once."),
    OPERATION("all_to_all_v_dedup_combine", dedupCombine,
              "output, input, weights, input_split_sizes, output_indices, output_split_sizes, ",
              "The way back of all_to_all_v_dedup: what returns for a row is summed."),
    OPERATION("barrier", barrier, "", "Ends when every rank has called it."),
    OPERATION("scatter", scatter, "output_tensor, input_tensor_list, root, ",
              "`output_tensor` becomes `input_tensor_list[rank]` of rank `root`; the list matters "
              "there alone. Also spelt `output`, `input_list`."),
    OPERATION("gather", gather, "output_tensor_list, input_tensor, root, ",
              "At rank `root`, `output_tensor_list[r]` becomes `input_tensor` of rank r; the list "
              "matters there alone. Also spelt `output_list`, `input`."),
    OPERATION("gather_single", gatherSingle, "output, input, root, ",
              "At rank `root`, part r of `output` becomes `input` of rank r."),
};

#undef OPERATION
#undef TAIL

}  // namespace

void addOperations(py::handle type) { commClass = addMethods(type, operations); }

}  // namespace torch::comms
