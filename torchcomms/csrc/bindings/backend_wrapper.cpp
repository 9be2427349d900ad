#include <comms/torchcomms/BackendWrapper.hpp>

#include "torchcomms/csrc/bindings/bindings.hpp"

namespace py = pybind11;

namespace torch::comms {

void bindBackendWrapper(py::module_& module) {
  // Its base class; torch.distributed itself may be half-way through its start.
  py::module_::import("torch.distributed");
  py::class_<BackendWrapper, c10d::Backend, c10::intrusive_ptr<BackendWrapper>>(
      module, "_BackendWrapper",
      "A TorchComm as a backend of torch.distributed, for a device of a ProcessGroup.\n\n"
      "Several threads may use it at the same time.")
      .def(py::init([](std::shared_ptr<TorchComm> comm) {
             return c10::make_intrusive<BackendWrapper>(std::move(comm));
           }),
           py::arg("comm").none(false))
      .def("get_comm", &BackendWrapper::getComm, "The communicator.")
      .def(
          "perform_nocolor_split", [](const BackendWrapper&, const py::object&) {},
          py::arg("device"),
          "Nothing: new groups make communicators of their own, without the parent's other ranks.");
}

}  // namespace torch::comms
