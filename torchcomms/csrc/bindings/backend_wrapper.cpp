#include <ATen/ATen.h>
#include <pybind11/stl.h>

#include <comms/torchcomms/BackendWrapper.hpp>

#include "torchcomms/csrc/bindings/bindings.hpp"

namespace py = pybind11;

namespace torch::comms {

namespace {

/// What torch.cuda.MemPool.snapshot() says of a pool's memory on that device, as bytes that
/// somebody else owns.
std::vector<at::Tensor> segmentsOf(const py::object& pool, at::Device device) {
  std::vector<at::Tensor> segments;
  for (const py::handle& segment : pool.attr("snapshot")()) {
    if (device.has_index() && segment["device"].cast<int>() != device.index()) continue;
    auto* const address = reinterpret_cast<void*>(segment["address"].cast<uintptr_t>());
    segments.push_back(at::for_blob(address, {segment["total_size"].cast<int64_t>()})
                           .options(at::TensorOptions(device).dtype(at::kByte))
                           .target_device(device)
                           .make_tensor());
  }
  return segments;
}

BackendWrapper::PoolId idOf(const py::object& pool) {
  return pool.attr("id").cast<BackendWrapper::PoolId>();
}

}  // namespace

void bindBackendWrapper(py::module_& module) {
  // Its base class; torch.distributed itself may be half-way through its start.
  py::module_::import("torch.distributed");
  py::class_<BackendWrapper, c10d::Backend, c10::intrusive_ptr<BackendWrapper>> wrapper(
      module, "_BackendWrapper",
      "A TorchComm as a backend of torch.distributed, for a device of a ProcessGroup.\n\n"
      "Several threads may use it at the same time.");
  if (!py::hasattr(wrapper, "options")) {  // of every backend, in newer torch
    wrapper.def_property_readonly("options", &BackendWrapper::getBackendOptions,
                                  "Its timeout and name, as those of torch's backends.");
  }
  wrapper
      .def(py::init([](std::shared_ptr<TorchComm> comm) {
             return c10::make_intrusive<BackendWrapper>(std::move(comm));
           }),
           py::arg("comm").none(false))
      .def("get_comm", &BackendWrapper::getComm, "The communicator.")
      .def_property_readonly(
          "mem_allocator",
          [](const BackendWrapper& self) { return memAllocatorOf(*self.getComm()); },
          "The communicator's.")
      .def(
          "register_mem_pool",
          [](BackendWrapper& self, const py::object& pool) {
            const auto id = idOf(pool);
            const auto segments = segmentsOf(pool, self.getComm()->getDevice());
            const HostWait wait;
            self.registerPool(id, segments);
          },
          py::arg("pool"),
          "Registers all memory that a torch.cuda.MemPool has now, as TorchComm.tensor_register() "
          "does that of a tensor. Called again, it adds what the pool has got meanwhile. The pool "
          "must keep its memory until deregister_mem_pool(). Raises CommError.")
      .def(
          "deregister_mem_pool",
          [](BackendWrapper& self, const py::object& pool) {
            const auto id = idOf(pool);
            const HostWait wait;
            self.deregisterPool(id);
          },
          py::arg("pool"), "Takes that back. Raises CommError if the pool is not registered.")
      .def(
          "perform_nocolor_split", [](const BackendWrapper&, const py::object&) {},
          py::arg("device"),
          "Nothing: new groups make communicators of their own, without the parent's other ranks.");
}

}  // namespace torch::comms
