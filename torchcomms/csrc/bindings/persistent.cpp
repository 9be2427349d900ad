#include <pybind11/stl.h>

#include "ctran/base/error.h"
#include "torchcomms/csrc/bindings/bindings.hpp"

namespace py = pybind11;

namespace torch::comms {

namespace {

/// An all-gather that is carried out again and again into the same memory.
struct PersistentAllGather {
  std::optional<at::Tensor> output;
  std::weak_ptr<TorchComm> comm;  ///< whose it is
};

[[noreturn]] void refuse(const char* operation, const std::string& what, const char* hint) {
  throw ctran::Error(ctran::ErrorKind::InvalidArgument, what, {}, operation, hint);
}

PersistentAllGather init(const std::shared_ptr<TorchComm>& self, const at::Tensor& output,
                         const py::object&, const py::object&) {
  constexpr const char* kName = "all_gather_p_init";
  if (!output.is_contiguous()) {
    refuse(kName, "output is not contiguous", "make it so with contiguous()");
  }
  if (output.device().type() != self->getDevice().type()) {
    refuse(kName,
           "output is on " + output.device().str() + ", the communicator on " +
               self->getDevice().str(),
           "move the tensor there");
  }
  if (output.numel() % self->getSize() != 0) {
    refuse(kName,
           "output has " + std::to_string(output.numel()) + " elements, which " +
               std::to_string(self->getSize()) + " ranks cannot share equally",
           "give it the size of the input times the number of ranks");
  }
  return {output, self};
}

void check(const TorchComm& self, const PersistentAllGather& handle, const char* operation) {
  if (handle.comm.lock().get() != &self) {
    refuse(operation, "the handle is of another communicator",
           "pass what all_gather_p_init of this one returned");
  }
  if (!handle.output) refuse(operation, "the handle is freed", "make one with all_gather_p_init");
}

}  // namespace

void bindPersistent(py::module_& module) {
  py::class_<PersistentAllGather>(module, "PersistentAllGather",
                                  "What all_gather_p_init() returns.")
      .def_property_readonly(
          "output", [](const PersistentAllGather& self) { return self.output; },
          "None when it is freed.");
  py::reinterpret_borrow<py::class_<TorchComm, std::shared_ptr<TorchComm>>>(
      module.attr("TorchComm"))
      .def("all_gather_p_init", &init, py::arg("output"), py::arg("hints") = py::none(),
           py::arg("timeout") = py::none(),
           "Prepares an all-gather into `output` that will be carried out again and again.")
      .def(
          "all_gather_p_exec",
          [](const py::object& self, const PersistentAllGather& handle, const py::object& input,
             bool asyncOp, const py::object& hints, const py::object& timeout) -> py::object {
            check(self.cast<const TorchComm&>(), handle, "all_gather_p_exec");
            return self.attr("all_gather_single")(*handle.output, input, asyncOp, hints, timeout);
          },
          py::arg("handle"), py::arg("input"), py::arg("async_op"), py::arg("hints") = py::none(),
          py::arg("timeout") = py::none(),
          "Part r of the handle's output becomes `input` of rank r, as by all_gather_single().")
      .def(
          "all_gather_p_free",
          [](const TorchComm& self, PersistentAllGather& handle) {
            check(self, handle, "all_gather_p_free");
            handle.output.reset();
          },
          py::arg("handle"), "Lets go of the output.");
}

}  // namespace torch::comms
