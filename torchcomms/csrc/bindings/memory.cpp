#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <pybind11/stl.h>

#include "torchcomms/csrc/backends/nccl/vendors.hpp"
#include "torchcomms/csrc/bindings/arguments.hpp"
#include "torchcomms/csrc/bindings/bindings.hpp"

namespace py = pybind11;

namespace torch::comms {

namespace {

/// A backend's allocator. They live as long as the process, as do the storages that name them.
struct MemAllocator {
  std::shared_ptr<c10::Allocator> allocator;

  at::Tensor empty(const std::vector<int64_t>& size, std::optional<at::ScalarType> dtype) const {
    return at::detail::empty_generic(
        size, allocator.get(), c10::DispatchKeySet(c10::DispatchKey::CPU),
        dtype.value_or(c10::typeMetaToScalarType(at::get_default_dtype())), std::nullopt);
  }
};

py::object poolAllocatorOf(const std::string& backend) {
  return py::module_::import("torchcomms._gpu_memory").attr("mem_allocator")(backend);
}

/// What torch.cuda.MemPool takes: of the engine's backends its own memory, which libraries take,
/// too, else the library's. On the CPU a MemAllocator.
py::object allocatorOf(const std::string& backend, at::Device device) {
  const bool isEngine = backend == "ctran" || backend == "ncclx";
  if (isEngine && device.is_cuda()) return poolAllocatorOf("ctran");
  if (nccl::isVendor(backend)) {
    nccl::requireAllocator(backend);
    return poolAllocatorOf(backend);
  }
  return py::cast(MemAllocator{TorchCommFactory::get().get_allocator(backend)});
}

}  // namespace

py::object memAllocatorOf(const TorchComm& comm) {
  return allocatorOf(std::string(comm.getBackend()), comm.getDevice());
}

void bindMemory(py::module_& module) {
  py::class_<MemAllocator>(module, "MemAllocator",
                           "Makes tensors in memory of which a backend can make the most.")
      .def("empty", &MemAllocator::empty, py::arg("size"), py::arg("dtype") = py::none(),
           "A tensor whose contents are not set. Its memory begins at a page of its own.");

  module.def(
      "get_mem_allocator",
      [](const std::string& backend, const py::object& device) {
        const at::Device usual(at::hasCUDA() ? at::kCUDA : at::kCPU);
        return allocatorOf(backend,
                           device.is_none() ? usual : toDevice("get_mem_allocator", device));
      },
      py::arg("backend"), py::arg("device") = py::none(),
      "The allocator of a backend for a device: by default CUDA where there is a GPU, else the "
      "CPU. "
      "For CUDA it is what torch.cuda.MemPool takes: of ctran and ncclx symmetric memory, of nccl "
      "and its kin the library's. For the CPU, a MemAllocator. Raises CommError if it has none.");
  module.def(
      "empty_shared",
      [](const std::vector<int64_t>& size, std::optional<at::ScalarType> dtype) {
        return MemAllocator{TorchCommFactory::get().get_allocator("ctran")}.empty(size, dtype);
      },
      py::arg("size"), py::arg("dtype") = py::none(),
      "A CPU tensor, contents not set, in page-aligned memory that the other processes of the host "
      "can map: windows over it are UNIFIED.");

  py::reinterpret_borrow<py::class_<TorchComm, std::shared_ptr<TorchComm>>>(
      module.attr("TorchComm"))
      .def("get_mem_allocator", &memAllocatorOf,
           "The MemAllocator of the backend. On CUDA devices, what torch.cuda.MemPool takes: of "
           "ctran and ncclx, symmetric memory. Raises CommError if it has none.")
      .def_property_readonly("mem_allocator", &memAllocatorOf, "get_mem_allocator().")
      .def(
          "tensor_register",
          [](TorchComm& self, const py::object& tensor) {
            self.tensorRegister(toTensor("tensor_register", "tensor", tensor));
          },
          py::arg("tensor"),
          "Says that the memory of a contiguous tensor will be used again and again. The "
          "communicator holds it until tensor_deregister(). Raises if it is registered.")
      .def(
          "tensor_deregister",
          [](TorchComm& self, const py::object& tensor) {
            self.tensorDeregister(toTensor("tensor_deregister", "tensor", tensor));
          },
          py::arg("tensor"), "Takes that back. Raises if it is not registered.");
}

}  // namespace torch::comms
