#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include "torchcomms/csrc/bindings/arguments.hpp"
#include "torchcomms/csrc/bindings/bindings.hpp"

namespace py = pybind11;

namespace torch::comms {

namespace {

void setTimeout(OpOptions& options, const std::optional<py::object>& timeout) {
  options.timeout = timeout ? toTimeout(*timeout) : kNoTimeout;
}

/// Of SendOptions and RecvOptions.
template <typename Options>
void bindMessage(py::module_& module, const char* name) {
  py::class_<Options, OpOptions>(module, name)
      .def(py::init(
               [](std::optional<Hints> hints, const std::optional<py::object>& timeout, int tag) {
                 Options options;
                 if (hints) options.hints = std::move(*hints);
                 setTimeout(options, timeout);
                 options.tag = tag;
                 return options;
               }),
           py::arg("hints") = py::none(), py::arg("timeout") = py::none(), py::arg("tag") = 0)
      .def_readwrite("tag", &Options::tag, "A message goes to a receive of its tag.");
}

template <typename Options>
void bindOperation(py::module_& module, const char* name) {
  py::class_<Options, OpOptions>(module, name)
      .def(py::init([](std::optional<Hints> hints, const std::optional<py::object>& timeout) {
             Options options;
             if (hints) options.hints = std::move(*hints);
             setTimeout(options, timeout);
             return options;
           }),
           py::arg("hints") = py::none(), py::arg("timeout") = py::none());
}

}  // namespace

void bindOptions(py::module_& module) {
  py::class_<CommOptions>(module, "CommOptions",
                          "How a communicator is made. A new one has the defaults of the "
                          "environment (TORCHCOMM_ABORT_ON_ERROR, TORCHCOMM_TIMEOUT_SECONDS).")
      .def(py::init<>())
      .def_readwrite("abort_process_on_timeout_or_error",
                     &CommOptions::abort_process_on_timeout_or_error,
                     "Whether an error that nobody is waiting for ends the process.")
      .def_property(
          "timeout", [](const CommOptions& self) { return self.timeout; },
          [](CommOptions& self, const py::object& timeout) { self.timeout = toTimeout(timeout); },
          "Of the creation and, by default, of every operation: a datetime.timedelta.")
      .def_readwrite("store", &CommOptions::store,
                     "The torch.distributed.Store through which the ranks find each other.")
      .def_readwrite("enable_reconfigure", &CommOptions::enable_reconfigure)
      .def_readwrite("is_high_priority_stream", &CommOptions::is_high_priority_stream)
      .def_readwrite("hints", &CommOptions::hints, "For the backend. A copy: assign to change it.")
      .def_readwrite("name", &CommOptions::name)
      .def_readwrite("rank", &CommOptions::rank,
                     "With `size`: the place of this process, instead of the environment's.")
      .def_readwrite("size", &CommOptions::size)
      .def("__eq__",
           [](const CommOptions& self, const py::object& other) {
             return py::isinstance<CommOptions>(other) && self == other.cast<const CommOptions&>();
           })
      .def("__repr__", [](const py::object& self) {
        py::list parts;
        for (const char* name :
             {"name", "rank", "size", "timeout", "abort_process_on_timeout_or_error", "store",
              "enable_reconfigure", "is_high_priority_stream", "hints"}) {
          parts.append(py::str("{}={!r}").format(name, self.attr(name)));
        }
        return py::str("CommOptions({})").format(py::str(", ").attr("join")(parts));
      });

  py::class_<OpOptions>(module, "OpOptions", "What the options of all operations have in common.")
      .def_readwrite("hints", &OpOptions::hints, "For the backend. A copy: assign to change it.")
      .def_property(
          "timeout", [](const OpOptions& self) { return self.timeout; },
          [](OpOptions& self, const std::optional<py::object>& timeout) {
            setTimeout(self, timeout);
          },
          "A datetime.timedelta; zero (or None, when set) is the communicator's.");
  bindMessage<SendOptions>(module, "SendOptions");
  bindMessage<RecvOptions>(module, "RecvOptions");
  bindOperation<BatchP2POptions>(module, "BatchP2POptions");
  bindOperation<BroadcastOptions>(module, "BroadcastOptions");
  bindOperation<AllReduceOptions>(module, "AllReduceOptions");
  bindOperation<ReduceOptions>(module, "ReduceOptions");
  bindOperation<AllGatherOptions>(module, "AllGatherOptions");
  bindOperation<AllGatherSingleOptions>(module, "AllGatherSingleOptions");
  bindOperation<ReduceScatterOptions>(module, "ReduceScatterOptions");
  bindOperation<ReduceScatterSingleOptions>(module, "ReduceScatterSingleOptions");
  bindOperation<AllToAllOptions>(module, "AllToAllOptions");
  bindOperation<AllToAllSingleOptions>(module, "AllToAllSingleOptions");
  bindOperation<AllToAllvSingleOptions>(module, "AllToAllvSingleOptions");
  bindOperation<BarrierOptions>(module, "BarrierOptions");
  bindOperation<ScatterOptions>(module, "ScatterOptions");
  bindOperation<GatherOptions>(module, "GatherOptions");
  bindOperation<GatherSingleOptions>(module, "GatherSingleOptions");
}

}  // namespace torch::comms
