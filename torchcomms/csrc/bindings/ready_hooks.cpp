#include <pybind11/stl.h>

#include <comms/torchcomms/hooks/ClogHook.hpp>
#include <comms/torchcomms/hooks/FlightRecorderHook.hpp>
#include <comms/torchcomms/hooks/NanCheckHook.hpp>

#include "torchcomms/csrc/bindings/bindings.hpp"

namespace py = pybind11;

namespace torch::comms {

void bindReadyHooks(py::module_& module) {
  py::class_<FlightRecorderHook>(
      module, "FlightRecorderHook",
      "Remembers the last operations of communicators, and writes them to a file when one of them "
      "breaks: a timeout, an abort, a lost peer. `python -m "
      "torch.distributed.flight_recorder.fr_trace` reads those files.")
      .def(py::init<std::optional<size_t>, bool>(), py::arg("max_entries") = py::none(),
           py::arg("isolated") = false,
           "max_entries: how many are remembered, by default TORCHCOMM_FR_BUFFER_SIZE (2048); with "
           "0 the hook does nothing. Hooks of a process share what they remember, but for "
           "isolated ones.")
      .def("register_with_comm", &FlightRecorderHook::register_with_comm, py::arg("comm"),
           "From now on the operations of `comm` are recorded, and those of communicators split "
           "from it. Once is enough.")
      .def("unregister", &FlightRecorderHook::unregister,
           "Records no more, of any communicator; keeps what it has.")
      .def("dump_json", &FlightRecorderHook::dump_json, py::arg("include_completed") = true,
           "What is remembered, as JSON.")
      .def("dump_file", &FlightRecorderHook::dump_file, py::arg("rank"),
           py::arg("include_completed") = true,
           "Writes it as a pickle to TORCHCOMM_FR_DUMP_TEMP_FILE followed by the rank (without it "
           "if "
           "TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME is true); the path.")
      .def("broken", &FlightRecorderHook::broken,
           "The names of the communicators that have broken, until they are reconfigured or "
           "finalized.")
      .def("reset", &FlightRecorderHook::reset, "Forgets all entries.")
      .def("is_enabled", &FlightRecorderHook::is_enabled,
           "Whether it has communicators to record, and room for entries.")
      .def("size", &FlightRecorderHook::size, "Entries remembered now.")
      .def("__len__", &FlightRecorderHook::size);

  py::class_<ClogHook>(module, "clog",
                       "Writes a compact log of the operations of communicators, a line per event.")
      .def(
          py::init<std::string, const std::vector<std::string>&, const std::vector<std::string>&>(),
          py::arg("output"), py::arg("events") = std::vector<std::string>(),
          py::arg("verbose") = std::vector<std::string>(),
          "output: the file, of this rank alone, which is there from now on; '{rank}' in it "
          "becomes the rank of the first communicator, and in a folder it is "
          "clog_rank<rank>.log: then it is made when that is registered. events: 'LIFECYCLE' or "
          "'ALL' add start, end and waits. "
          "verbose: 'buffers' adds addresses.")
      .def("register_with_comm", &ClogHook::register_with_comm, py::arg("comm"),
           "From now on the operations of `comm` are logged.")
      .def("unregister", &ClogHook::unregister, "Logs no more, of any communicator.");

  py::class_<NanCheckHook>(module, "NanCheckHook",
                           "Raises where a NaN would be sent, or has been received.")
      .def(py::init<bool, bool>(), py::arg("check_inputs") = true, py::arg("check_outputs") = false)
      .def("register_with_comm", &NanCheckHook::register_with_comm, py::arg("comm"),
           "From now on the operations of `comm` are checked.")
      .def("unregister", &NanCheckHook::unregister, "Checks no more, on any communicator.")
      .def("is_enabled", &NanCheckHook::is_enabled,
           "Whether it has communicators to check, and something to look at.");
}

}  // namespace torch::comms
