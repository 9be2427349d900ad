// PyTorch's ProcessGroupGloo, through the Python class that torch has for it.

#include "torchcomms/csrc/backends/gloo/gloo.hpp"

#include <torch/csrc/utils/pybind.h>

#include <comms/torchcomms/TorchWork.hpp>

#include "ctran/base/error.h"

#include <pybind11/chrono.h>

namespace py = pybind11;

namespace torch::comms {

namespace {

py::object makeOptions(const py::object& gloo, std::chrono::milliseconds timeout,
                       const GlooDevice& device) {
  const char* name = py::hasattr(gloo, "_Options") ? "_Options" : "Options";
  const py::object options = gloo.attr(name)();
  py::list devices;
  if (device.hostname.empty() && device.interface.empty()) {
    devices.append(gloo.attr("create_default_device")(py::arg("lazy_init") = device.lazy));
  } else {
    devices.append(gloo.attr("create_device")(py::arg("hostname") = device.hostname,
                                              py::arg("interface") = device.interface,
                                              py::arg("lazy_init") = device.lazy));
  }
  options.attr("_devices") = devices;
  options.attr("_timeout") = timeout;
  return options;
}

c10::intrusive_ptr<c10d::Backend> makeGloo(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                           int size, std::chrono::milliseconds timeout,
                                           const GlooDevice& device) {
  const py::gil_scoped_acquire lock;
  try {
    const py::object gloo =
        py::module_::import("torch._C._distributed_c10d").attr("ProcessGroupGloo");
    const py::object made = device.isDefault()
                                ? gloo(store, rank, size, timeout)
                                : gloo(store, rank, size, makeOptions(gloo, timeout, device));
    auto backend = made.cast<c10::intrusive_ptr<c10d::Backend>>();
    // A rank may be done, and gone, while others still connect to it: they would take it for lost.
    const HostWait wait;
    if (size > 1) backend->barrier()->wait();
    return backend;
  } catch (std::exception& error) {  // of Python, or of Gloo
    throw ctran::Error(
        ctran::ErrorKind::System, std::string("PyTorch's Gloo could not be made: ") + error.what(),
        {}, {},
        "if hosts do not reach each other, `torchcomms doctor` on each says why; see "
        "TORCHCOMM_GLOO_INTERFACE");
  }
}

// This module is loaded by Python, and libtorchcomms before it.
[[maybe_unused]] const bool kRegistered = (setGlooFactory(&makeGloo), true);

}  // namespace

}  // namespace torch::comms
