#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include <array>
#include <tuple>

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
void bindMessage(py::module_& module, const char* name, const char* about) {
  py::class_<Options, OpOptions>(module, name, about)
      .def(py::init([](std::optional<Hints> hints, const std::optional<py::object>& timeout,
                       const Integer& tag) {
             Options options;
             if (hints) options.hints = std::move(*hints);
             setTimeout(options, timeout);
             options.tag = tag.tag();
             return options;
           }),
           py::arg("hints") = py::none(), py::arg("timeout") = py::none(), py::arg("tag") = 0)
      .def_property(
          "tag", [](const Options& self) { return self.tag; },
          [](Options& self, const Integer& tag) { self.tag = tag.tag(); },
          "A message goes to a receive of its tag.")
      .def(py::pickle(
          [](const Options& self) { return std::tuple(self.hints, self.timeout, self.tag); },
          [](std::tuple<Hints, std::chrono::milliseconds, int> state) {
            Options options;
            std::tie(options.hints, options.timeout, options.tag) = std::move(state);
            return options;
          }));
}

template <typename Options>
void bindOperation(py::module_& module, const char* name, const char* about) {
  py::class_<Options, OpOptions>(module, name, about)
      .def(py::init([](std::optional<Hints> hints, const std::optional<py::object>& timeout) {
             Options options;
             if (hints) options.hints = std::move(*hints);
             setTimeout(options, timeout);
             return options;
           }),
           py::arg("hints") = py::none(), py::arg("timeout") = py::none())
      .def(py::pickle([](const Options& self) { return std::pair(self.hints, self.timeout); },
                      [](std::pair<Hints, std::chrono::milliseconds> state) {
                        Options options;
                        std::tie(options.hints, options.timeout) = std::move(state);
                        return options;
                      }));
}

/// The fields of CommOptions.
constexpr std::array kCommFields{"name",
                                 "rank",
                                 "size",
                                 "timeout",
                                 "abort_process_on_timeout_or_error",
                                 "store",
                                 "enable_reconfigure",
                                 "is_high_priority_stream",
                                 "hints"};

py::dict fieldsOf(const py::object& options) {
  py::dict fields;
  for (const char* name : kCommFields) fields[name] = options.attr(name);
  return fields;
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
      .def_readwrite("enable_reconfigure", &CommOptions::enable_reconfigure,
                     "No members until the first reconfigure().")
      .def_readwrite("is_high_priority_stream", &CommOptions::is_high_priority_stream,
                     "On a GPU: of the communicator's own stream.")
      .def_readwrite("high_priority_stream", &CommOptions::is_high_priority_stream,
                     "Another name of is_high_priority_stream.")
      .def_readwrite("hints", &CommOptions::hints, "For the backend. A copy: assign to change it.")
      .def_readwrite("name", &CommOptions::name, "The same on every rank.")
      .def_readwrite("rank", &CommOptions::rank,
                     "With `size`: the place of this process, instead of the environment's.")
      .def_readwrite("size", &CommOptions::size, "The number of ranks, with `rank`.")
      .def(py::pickle(&fieldsOf,
                      [](const py::dict& fields) {
                        CommOptions options;
                        const py::object made =
                            py::cast(&options, py::return_value_policy::reference);
                        for (const auto& [name, value] : fields) py::setattr(made, name, value);
                        return options;
                      }))
      .def("__eq__",
           [](const CommOptions& self, const py::object& other) {
             return py::isinstance<CommOptions>(other) && self == other.cast<const CommOptions&>();
           })
      .def("__repr__", [](const py::object& self) {
        py::list parts;
        for (const auto& [name, value] : fieldsOf(self)) {
          parts.append(py::str("{}={!r}").format(name, value));
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
  bindMessage<SendOptions>(module, "SendOptions", "Options of send.");
  bindMessage<RecvOptions>(module, "RecvOptions", "Options of recv.");
  bindOperation<BatchP2POptions>(module, "BatchP2POptions", "Options of BatchSendRecv.issue.");
  bindOperation<BroadcastOptions>(module, "BroadcastOptions", "Options of broadcast.");
  bindOperation<AllReduceOptions>(module, "AllReduceOptions", "Options of all_reduce.");
  bindOperation<ReduceOptions>(module, "ReduceOptions", "Options of reduce.");
  bindOperation<AllGatherOptions>(module, "AllGatherOptions",
                                  "Options of all_gather and all_gather_v.");
  bindOperation<AllGatherSingleOptions>(module, "AllGatherSingleOptions",
                                        "Options of all_gather_single.");
  bindOperation<ReduceScatterOptions>(module, "ReduceScatterOptions",
                                      "Options of reduce_scatter and reduce_scatter_v.");
  bindOperation<ReduceScatterSingleOptions>(
      module, "ReduceScatterSingleOptions",
      "Options of reduce_scatter_single and reduce_scatter_quantized.");
  bindOperation<AllToAllOptions>(module, "AllToAllOptions", "Options of all_to_all.");
  bindOperation<AllToAllSingleOptions>(module, "AllToAllSingleOptions",
                                       "Options of all_to_all_single.");
  bindOperation<AllToAllvSingleOptions>(
      module, "AllToAllvSingleOptions",
      "Options of all_to_all_v_single, and of exchanges whose sizes stand in tensors.");
  bindOperation<BarrierOptions>(module, "BarrierOptions", "Options of barrier.");
  bindOperation<ScatterOptions>(module, "ScatterOptions", "Options of scatter.");
  bindOperation<GatherOptions>(module, "GatherOptions", "Options of gather.");
  bindOperation<GatherSingleOptions>(module, "GatherSingleOptions", "Options of gather_single.");
}

}  // namespace torch::comms
