#include "torchcomms/csrc/bindings/backends/python/backend.hpp"

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include <comms/torchcomms/TorchCommFactory.hpp>

#include "torchcomms/csrc/bindings/backends/python/work.hpp"
#include "torchcomms/csrc/combined_work.hpp"

namespace py = pybind11;

namespace torch::comms {

std::shared_ptr<TorchCommBackend> PythonBackend::hold(const py::object& instance) {
  if (!py::isinstance<TorchCommBackend>(instance)) {
    throw py::type_error("A Python backend must be a torchcomms.TorchCommBackend, got " +
                         py::repr(instance).cast<std::string>());
  }
  // The Python object owns the C++ one; whoever holds the latter has to hold both.
  auto* keep = new py::object(instance);
  return {instance.cast<TorchCommBackend*>(), [keep](TorchCommBackend*) {
            const py::gil_scoped_acquire lock;
            delete keep;
          }};
}

py::function PythonBackend::find(const char* name) const {
  return py::get_override(static_cast<const TorchCommBackend*>(this), name);
}

py::function PythonBackend::require(const char* name) const {
  py::function method = find(name);
  if (!method) unsupported(name);
  return method;
}

template <typename Result, typename... Args>
Result PythonBackend::ask(const char* name, Result otherwise, Args&&... args) const {
  const py::gil_scoped_acquire lock;
  const py::function method = find(name);
  return method ? method(std::forward<Args>(args)...).template cast<Result>() : otherwise;
}

const PythonBackend::Accepts& PythonBackend::acceptedBy(const char* name,
                                                        const py::function& method) {
  const auto found = accepts_.find(name);
  if (found != accepts_.end()) return found->second;
  Accepts accepts;
  const py::object inspect = py::module_::import("inspect");
  const py::dict parameters = inspect.attr("signature")(method).attr("parameters").attr("copy")();
  for (const auto& [key, parameter] : parameters) {
    const auto text = py::str(key).cast<std::string>();
    accepts.options |= text == "options";
    accepts.hints |= text == "hints";
    accepts.timeout |= text == "timeout";
    if (parameter.attr("kind").equal(inspect.attr("Parameter").attr("VAR_KEYWORD"))) {
      accepts.options = true;
    }
  }
  return accepts_.emplace(name, accepts).first->second;
}

template <typename Options, typename... Args>
TorchCommBackend::WorkPtr PythonBackend::call(const char* name, const Options& options,
                                              const Args&... args) {
  const py::gil_scoped_acquire lock;
  const py::function method = require(name);
  const Accepts& accepts = acceptedBy(name, method);
  py::dict given;
  if (accepts.options) given["options"] = options;
  if (accepts.hints) given["hints"] = options.hints;
  if (accepts.timeout) {
    given["timeout"] = options.timeout == kNoTimeout ? options_.timeout : options.timeout;
  }
  return PythonWork::of(name, method(args..., **given));
}

void PythonBackend::init(at::Device device, std::string_view name, const CommOptions& options) {
  device_ = device;
  options_ = options;
  options_.name = std::string(name);
  const py::gil_scoped_acquire lock;
  if (const py::function method = find("init")) method(device, options_.name, options_);
  backendName_ = ask<std::string>("get_backend_name", backendName_);
  options_.rank = ask<int>("get_rank", options_.rank.value_or(0));
  options_.size = ask<int>("get_size", options_.size.value_or(1));
  options_.name = ask<std::string>("get_comm_name", options_.name);
}

void PythonBackend::finalize() {
  const py::gil_scoped_acquire lock;
  if (const py::function method = find("finalize")) method();
}

int PythonBackend::getRank() const { return ask<int>("get_rank", options_.rank.value_or(0)); }
int PythonBackend::getSize() const { return ask<int>("get_size", options_.size.value_or(1)); }

std::string_view PythonBackend::getBackendVersion() const {
  version_ = ask<std::string>("get_backend_version", "unknown");
  return version_;
}

TorchCommBackend::WorkPtr PythonBackend::send(const at::Tensor& tensor, int dst, bool async_op,
                                              const SendOptions& options) {
  return call("send", options, tensor, dst, async_op);
}

TorchCommBackend::WorkPtr PythonBackend::recv(at::Tensor& tensor, int src, bool async_op,
                                              const RecvOptions& options) {
  return call("recv", options, tensor, src, async_op);
}

TorchCommBackend::WorkPtr PythonBackend::batch_op_issue(const std::vector<P2POp>& ops,
                                                        bool async_op,
                                                        const BatchP2POptions& options) {
  const bool defined = [&] {
    const py::gil_scoped_acquire lock;
    return static_cast<bool>(find("batch_op_issue"));
  }();
  if (defined) return call("batch_op_issue", options, ops, async_op);
  // All are issued before any is waited for.
  std::vector<WorkPtr> works;
  for (const P2POp& op : ops) {
    at::Tensor tensor = op.tensor;
    if (op.type == P2POp::Type::SEND) {
      SendOptions one;
      static_cast<OpOptions&>(one) = options;
      one.tag = op.tag;
      works.push_back(send(tensor, op.peer, /*async_op=*/true, one));
    } else {
      RecvOptions one;
      static_cast<OpOptions&>(one) = options;
      one.tag = op.tag;
      works.push_back(recv(tensor, op.peer, /*async_op=*/true, one));
    }
  }
  WorkPtr all = CombinedWork::of(std::move(works));
  if (!async_op) all->wait();
  return all;
}

TorchCommBackend::WorkPtr PythonBackend::broadcast(at::Tensor& tensor, int root, bool async_op,
                                                   const BroadcastOptions& options) {
  return call("broadcast", options, tensor, root, async_op);
}

TorchCommBackend::WorkPtr PythonBackend::all_reduce(at::Tensor& tensor, const ReduceOp& op,
                                                    bool async_op,
                                                    const AllReduceOptions& options) {
  return call("all_reduce", options, tensor, op, async_op);
}

TorchCommBackend::WorkPtr PythonBackend::reduce(at::Tensor& tensor, int root, const ReduceOp& op,
                                                bool async_op, const ReduceOptions& options) {
  return call("reduce", options, tensor, root, op, async_op);
}

TorchCommBackend::WorkPtr PythonBackend::all_gather(const Tensors& tensor_list,
                                                    const at::Tensor& tensor, bool async_op,
                                                    const AllGatherOptions& options) {
  return call("all_gather", options, tensor_list, tensor, async_op);
}

TorchCommBackend::WorkPtr PythonBackend::all_gather_v(const Tensors& tensor_list,
                                                      const at::Tensor& tensor, bool async_op,
                                                      const AllGatherOptions& options) {
  return call("all_gather_v", options, tensor_list, tensor, async_op);
}

TorchCommBackend::WorkPtr PythonBackend::all_gather_single(at::Tensor& output,
                                                           const at::Tensor& input, bool async_op,
                                                           const AllGatherSingleOptions& options) {
  return call("all_gather_single", options, output, input, async_op);
}

TorchCommBackend::WorkPtr PythonBackend::reduce_scatter(at::Tensor& output,
                                                        const Tensors& input_list,
                                                        const ReduceOp& op, bool async_op,
                                                        const ReduceScatterOptions& options) {
  return call("reduce_scatter", options, output, input_list, op, async_op);
}

TorchCommBackend::WorkPtr PythonBackend::reduce_scatter_v(at::Tensor& output,
                                                          const Tensors& input_list,
                                                          const ReduceOp& op, bool async_op,
                                                          const ReduceScatterOptions& options) {
  return call("reduce_scatter_v", options, output, input_list, op, async_op);
}

TorchCommBackend::WorkPtr PythonBackend::reduce_scatter_single(
    at::Tensor& output, const at::Tensor& input, const ReduceOp& op, bool async_op,
    const ReduceScatterSingleOptions& options) {
  return call("reduce_scatter_single", options, output, input, op, async_op);
}

TorchCommBackend::WorkPtr PythonBackend::all_to_all_single(at::Tensor& output,
                                                           const at::Tensor& input, bool async_op,
                                                           const AllToAllSingleOptions& options) {
  return call("all_to_all_single", options, output, input, async_op);
}

TorchCommBackend::WorkPtr PythonBackend::all_to_all_v_single(
    at::Tensor& output, const at::Tensor& input, const std::vector<uint64_t>& output_split_sizes,
    const std::vector<uint64_t>& input_split_sizes, bool async_op,
    const AllToAllvSingleOptions& options) {
  return call("all_to_all_v_single", options, output, input, output_split_sizes, input_split_sizes,
              async_op);
}

TorchCommBackend::WorkPtr PythonBackend::all_to_all(const Tensors& output_tensor_list,
                                                    const Tensors& input_tensor_list, bool async_op,
                                                    const AllToAllOptions& options) {
  return call("all_to_all", options, output_tensor_list, input_tensor_list, async_op);
}

TorchCommBackend::WorkPtr PythonBackend::barrier(bool async_op, const BarrierOptions& options) {
  return call("barrier", options, async_op);
}

TorchCommBackend::WorkPtr PythonBackend::scatter(at::Tensor& output_tensor,
                                                 const Tensors& input_tensor_list, int root,
                                                 bool async_op, const ScatterOptions& options) {
  return call("scatter", options, output_tensor, input_tensor_list, root, async_op);
}

TorchCommBackend::WorkPtr PythonBackend::gather(const Tensors& output_tensor_list,
                                                const at::Tensor& input_tensor, int root,
                                                bool async_op, const GatherOptions& options) {
  return call("gather", options, output_tensor_list, input_tensor, root, async_op);
}

TorchCommBackend::WorkPtr PythonBackend::gather_single(at::Tensor& output, const at::Tensor& input,
                                                       int root, bool async_op,
                                                       const GatherSingleOptions& options) {
  const bool defined = [&] {
    const py::gil_scoped_acquire lock;
    return static_cast<bool>(find("gather_single"));
  }();
  if (defined) return call("gather_single", options, output, input, root, async_op);
  return TorchCommBackend::gather_single(output, input, root, async_op, options);
}

std::shared_ptr<TorchCommBackend> PythonBackend::split(const std::vector<int>& ranks,
                                                       const std::string& name,
                                                       const CommOptions& options) {
  const py::gil_scoped_acquire lock;
  const py::function method = require("split");
  const Accepts& accepts = acceptedBy("split", method);
  const py::object child =
      accepts.options ? method(ranks, name, py::arg("options") = options) : method(ranks, name);
  return child.is_none() ? nullptr : hold(child);
}

bool PythonBackend::isAbortSupported() const {
  const py::gil_scoped_acquire lock;
  return static_cast<bool>(find("abort"));
}

void PythonBackend::abort() {
  const py::gil_scoped_acquire lock;
  require("abort")();
}

bool PythonBackend::isAborted() const { return ask<bool>("is_aborted", false); }

void PythonBackend::setTimeout(std::chrono::milliseconds timeout) {
  const py::gil_scoped_acquire lock;
  require("set_timeout")(timeout);
  options_.timeout = timeout;
}

void PythonBackend::setHints(const Hints& hints) {
  const py::gil_scoped_acquire lock;
  require("set_hints")(hints);
  options_.hints = hints;
}

void addPythonBackends(py::module_& module) {
  module.def(
      "register_backend",
      [](const std::string& name, const py::type& cls) {
        const py::object base = py::type::of<TorchCommBackend>();
        if (PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls.ptr()),
                             reinterpret_cast<PyTypeObject*>(base.ptr())) == 0) {
          throw py::type_error("register_backend() takes a subclass of TorchCommBackend, got " +
                               py::repr(cls).cast<std::string>());
        }
        // Kept until the process ends: the factory outlives the interpreter.
        auto* kept = new py::object(cls);
        try {
          TorchCommFactory::get().register_backend(name, [kept] {
            const py::gil_scoped_acquire lock;
            return PythonBackend::hold((*kept)());
          });
        } catch (...) {
          delete kept;
          throw;
        }
      },
      py::arg("name"), py::arg("cls"),
      "Makes the subclass `cls` of TorchCommBackend the backend `name` of new_comm(). Raises "
      "ValueError if there is one of that name.");
}

}  // namespace torch::comms
