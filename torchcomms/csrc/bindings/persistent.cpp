#include <pybind11/stl.h>

#include "ctran/base/error.h"
#include "torchcomms/csrc/bindings/arguments.hpp"
#include "torchcomms/csrc/bindings/bindings.hpp"

namespace py = pybind11;

namespace torch::comms {

namespace {

/// An operation that is carried out again and again into the same memory.
struct Persistent {
  std::optional<at::Tensor> output;
  std::weak_ptr<TorchComm> comm;   ///< whose it is
  std::shared_ptr<void> prepared;  ///< by its backend, if that has something to prepare
};

struct AllGather : Persistent {
  static constexpr const char* kClass = "PersistentAllGather";
  static constexpr const char* kInit = "all_gather_p_init";
  static constexpr const char* kExec = "all_gather_p_exec";
  static constexpr const char* kFree = "all_gather_p_free";
  using Options = AllGatherSingleOptions;
  static constexpr OpName kOp = OpName::all_gather_single;
  static constexpr const char* kOperation = "all_gather_single";
  static constexpr const char* kRightSize =
      "give it the size of the input times the number of ranks";
};

struct AllToAll : Persistent {
  static constexpr const char* kClass = "PersistentAllToAll";
  static constexpr const char* kInit = "all_to_all_p_init";
  static constexpr const char* kExec = "all_to_all_p_exec";
  static constexpr const char* kFree = "all_to_all_p_free";
  using Options = AllToAllSingleOptions;
  static constexpr OpName kOp = OpName::all_to_all_single;
  static constexpr const char* kOperation = "all_to_all_single";
  static constexpr const char* kRightSize = "give it the size of the input, a part for each rank";
};

[[noreturn]] void refuse(const char* operation, const std::string& what, const std::string& hint) {
  throw ctran::Error(ctran::ErrorKind::InvalidArgument, what, {}, operation, hint);
}

template <typename Handle>
Handle init(const std::shared_ptr<TorchComm>& self, const py::object& given,
            const std::optional<Hints>& hints, const std::optional<py::object>& timeout) {
  const at::Tensor output = toTensor(Handle::kInit, "output", given);
  OpOptions options;
  if (hints) options.hints = *hints;
  if (timeout) options.timeout = toTimeout(*timeout);
  if (self->isFinalized()) {
    refuse(Handle::kInit, "TorchComm '" + std::string(self->getCommName()) + "' already finalized",
           {});
  }
  if (output.layout() != at::kStrided || output.is_nested()) {
    refuse(Handle::kInit, "output is not dense", "make it so with to_dense()");
  }
  if (!output.is_contiguous()) {
    refuse(Handle::kInit, "output is not contiguous", "make it so with contiguous()");
  }
  if (output.device().type() != self->getDevice().type()) {
    refuse(Handle::kInit,
           "output is on " + output.device().str() + ", the communicator on " +
               self->getDevice().str(),
           "move the tensor there");
  }
  if (output.numel() % self->getSize() != 0) {
    refuse(Handle::kInit,
           "output has " + std::to_string(output.numel()) + " elements, which " +
               std::to_string(self->getSize()) + " ranks cannot share equally",
           Handle::kRightSize);
  }
  Handle handle;
  handle.output = output;
  handle.comm = self;
  handle.prepared = self->getBackendImpl()->prepare(Handle::kOp, output, options);
  return handle;
}

template <typename Handle>
void check(const TorchComm& self, const Handle& handle, const char* operation) {
  if (handle.comm.lock().get() != &self) {
    refuse(operation, "the handle is of another communicator",
           std::string("pass what ") + Handle::kInit + " of this one returned");
  }
  if (!handle.output) {
    refuse(operation, "the handle is freed", std::string("make one with ") + Handle::kInit);
  }
}

template <typename Handle>
void bind(py::module_& module, const char* ofClass, const char* ofInit, const char* ofExec) {
  py::class_<Handle>(module, Handle::kClass, ofClass)
      .def_property_readonly(
          "output", [](const Handle& self) { return self.output; }, "None when it is freed.")
      .def_property_readonly(
          "comm", [](const Handle& self) { return self.comm.lock(); },
          "Whose it is; None when that has gone.");
  py::reinterpret_borrow<py::class_<TorchComm, std::shared_ptr<TorchComm>>>(
      module.attr("TorchComm"))
      .def(Handle::kInit, &init<Handle>, py::arg("output"), py::arg("hints") = py::none(),
           py::arg("timeout") = py::none(), ofInit)
      .def(
          Handle::kExec,
          [](const py::object& self, const Handle& handle, const py::object& input, bool asyncOp,
             const py::object& hints, const py::object& timeout) -> py::object {
            check(self.cast<const TorchComm&>(), handle, Handle::kExec);
            py::object options = py::none();
            if (handle.prepared) {
              typename Handle::Options made;
              made.prepared = handle.prepared;
              options = py::cast(std::move(made));
            }
            return self.attr(Handle::kOperation)(*handle.output, input, asyncOp, hints, timeout,
                                                 py::arg("options") = options);
          },
          py::arg("handle"), py::arg("input"), py::arg("async_op"), py::arg("hints") = py::none(),
          py::arg("timeout") = py::none(), ofExec)
      .def(
          Handle::kFree,
          [](const TorchComm& self, Handle& handle) {
            check(self, handle, Handle::kFree);
            handle.prepared.reset();
            handle.output.reset();
          },
          py::arg("handle"), "Lets go of the output: when all ranks have made their last call.");
}

}  // namespace

void bindPersistent(py::module_& module) {
  bind<AllGather>(module, "What all_gather_p_init() returns.",
                  "Prepares an all-gather into `output` that will be carried out again and again.",
                  "Part r of the handle's output becomes `input` of rank r, as by "
                  "all_gather_single().");
  bind<AllToAll>(module, "What all_to_all_p_init() returns.",
                 "Prepares an all-to-all into `output` that will be carried out again and again.",
                 "Part r of the handle's output becomes part `rank` of `input` of rank r, as by "
                 "all_to_all_single().");
}

}  // namespace torch::comms
