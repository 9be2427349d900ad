#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include "torchcomms/csrc/bindings/arguments.hpp"
#include "torchcomms/csrc/bindings/bindings.hpp"

namespace py = pybind11;

namespace torch::comms {

namespace {

/// A list is ordered, a set is not.
ReconfigureOptions makeOptions(const py::object& uuid, const py::object& handles,
                               const std::optional<py::object>& timeout,
                               std::optional<Hints> hints) {
  ReconfigureOptions options;
  options.uuid = py::str(uuid).cast<std::string>();
  const bool isSet = PyAnySet_Check(handles.ptr());
  if (!isSet && (!PySequence_Check(handles.ptr()) || PyUnicode_Check(handles.ptr()))) {
    throw py::type_error("init_handles must be a list or a set of str");
  }
  for (const py::handle handle : handles) {
    options.init_handles.push_back(py::cast<std::string>(handle));
  }
  options.ordered = !isSet;
  if (timeout) options.timeout = toTimeout(*timeout);
  if (hints) options.hints = std::move(*hints);
  return options;
}

py::object handlesOf(const ReconfigureOptions& options) {
  const py::object list = py::cast(options.init_handles);
  return options.ordered ? list : py::set(list);
}

}  // namespace

void bindReconfigure(py::module_& module) {
  py::class_<ReconfigureOptions>(module, "ReconfigureOptions",
                                 "Of whom a communicator consists from now on.")
      .def(py::init(&makeOptions), py::arg("uuid"), py::arg("init_handles"),
           py::arg("timeout") = py::none(), py::arg("hints") = py::none())
      .def_readwrite("uuid", &ReconfigureOptions::uuid,
                     "The same on all members, and a new one each time.")
      .def_property_readonly("init_handles", &handlesOf, "A list: ordered. A set: not.")
      .def_property_readonly(
          "timeout", [](const ReconfigureOptions& self) { return self.timeout; },
          "Zero is the communicator's.")
      .def_readonly("hints", &ReconfigureOptions::hints, "For the backend.");

  py::reinterpret_borrow<py::class_<TorchComm, std::shared_ptr<TorchComm>>>(
      module.attr("TorchComm"))
      .def("get_init_handle", &TorchComm::getInitHandle,
           "What names this process and, with enable_reconfigure=True, says how others reach it: "
           "for reconfigure().")
      .def(
          "reconfigure",
          [](TorchComm& self, const py::object& uuid, const py::object& handles,
             const std::optional<py::object>& timeout, std::optional<Hints> hints) {
            self.reconfigure(makeOptions(uuid, handles, timeout, std::move(hints)));
            return py::reinterpret_steal<py::object>(wrapWork(TorchWorkCompleted::shared()));
          },
          py::arg("uuid"), py::arg("init_handles"), py::arg("timeout") = py::none(),
          py::arg("hints") = py::none(),
          "From now on the communicator consists of the processes of `init_handles`: collective "
          "over them. In a list, rank r is the process of init_handles[r]; a set leaves the order "
          "to the backend. All pass the same `uuid`, a new one. A broken communicator works again; "
          "what was in flight fails. When it raises, the communicator is as before.");
}

}  // namespace torch::comms
