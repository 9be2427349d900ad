// Backend xccl: PyTorch's ProcessGroupXCCL (Intel's oneCCL), through the Python class that a torch
// for Intel GPUs has for it.

#include <torch/csrc/utils/pybind.h>

#include <comms/torchcomms/TorchCommFactory.hpp>

#include "ctran/base/error.h"
#include "torchcomms/csrc/backends/c10d/backend.hpp"
#include "torchcomms/csrc/backends/unknown_hint.hpp"

#include <pybind11/chrono.h>

namespace py = pybind11;

namespace torch::comms {

namespace {

py::object processGroupClass() {
  const py::module_ c10d = py::module_::import("torch._C._distributed_c10d");
  if (py::hasattr(c10d, "ProcessGroupXCCL")) return c10d.attr("ProcessGroupXCCL");
  const auto version = py::str(py::module_::import("torch").attr("__version__"));
  throw ctran::Error(ctran::ErrorKind::Unsupported,
                     "Backend xccl is PyTorch's ProcessGroupXCCL, which torch " +
                         std::string(version) + " does not have",
                     {}, {},
                     "install a torch for Intel GPUs (pip install torch --index-url "
                     "https://download.pytorch.org/whl/xpu), and torchcomms again");
}

c10::intrusive_ptr<c10d::Backend> makeXccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                           int size, std::chrono::milliseconds timeout,
                                           const Hints& hints) {
  for (const auto& [key, value] : hints) {
    noteUnknownHint("xccl", key);
  }
  const py::gil_scoped_acquire lock;
  const py::object group = processGroupClass();
  try {
    const py::object options = group.attr("Options")();
    options.attr("_timeout") = timeout;
    return group(store, rank, size, options).cast<c10::intrusive_ptr<c10d::Backend>>();
  } catch (std::exception& error) {
    throw ctran::Error(
        ctran::ErrorKind::System,
        std::string("PyTorch's ProcessGroupXCCL could not be made: ") + error.what());
  }
}

const BackendRegistration kXccl("xccl", []() -> std::shared_ptr<TorchCommBackend> {
  {
    const py::gil_scoped_acquire lock;
    processGroupClass();  // before ranks wait for each other in vain
  }
  return std::make_shared<C10dBackend>(
      C10dKind{.name = "xccl", .factory = makeXccl, .device = "xpu", .reducesBits = false});
});

}  // namespace

}  // namespace torch::comms
