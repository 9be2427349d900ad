#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include <algorithm>

#include <comms/torchcomms/TorchCommPlugin.hpp>

#include "torchcomms/csrc/bindings/arguments.hpp"
#include "torchcomms/csrc/bindings/backends/python/backend.hpp"
#include "torchcomms/csrc/bindings/bindings.hpp"
#include "torchcomms/csrc/current_stream.hpp"

#include "ctran/base/error.h"
#include "ctran/base/log.h"

namespace py = pybind11;

namespace torch::comms {

namespace {

using OptionalTimeout = std::optional<py::object>;

using P2PTuple = std::tuple<at::Tensor, bool, int, int>;

std::vector<P2PTuple> tuplesOf(const BatchSendRecv& batch) {
  std::vector<P2PTuple> tuples;
  for (const P2POp& op : batch.ops) {
    tuples.emplace_back(op.tensor, op.type == P2POp::Type::SEND, op.peer, op.tag);
  }
  return tuples;
}

void setTuples(BatchSendRecv& batch, const std::vector<P2PTuple>& tuples) {
  batch.ops.clear();
  for (const auto& [tensor, sends, peer, tag] : tuples) {
    batch.ops.push_back({sends ? P2POp::Type::SEND : P2POp::Type::RECV, tensor, peer, tag});
  }
}

[[noreturn]] void raiseNotFound(const ctran::Error& error) {
  const py::object type = py::module_::import("torchcomms._errors").attr("BackendNotFoundError");
  const py::object instance = type(error.what(), error.ranks(), "new_comm", error.hint());
  PyErr_SetObject(type.ptr(), instance.ptr());
  throw py::error_already_set();
}

/// Loads the package that has the backend, if it is not there already. If nothing provides it, the
/// factory's error says more than the import's.
void loadBackend(const std::string& backend) {
  if (TorchCommFactory::get().is_backend_registered(backend)) return;
  try {
    py::module_::import("torchcomms").attr("_load_backend")(backend);
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_ModuleNotFoundError)) throw;
  }
  try {
    TorchCommFactory::get().traits(backend);
  } catch (const ctran::Error& error) {
    raiseNotFound(error);
  }
}

/// An argument of new_comm; `typeName` is how people call its type.
template <typename T>
T argumentOf(const char* name, const char* typeName, const py::object& value) {
  try {
    return value.cast<T>();
  } catch (const py::cast_error&) {
    throw py::type_error("new_comm(): argument '" + std::string(name) + "' must be " + typeName +
                         ", not " + Py_TYPE(value.ptr())->tp_name);
  }
}

std::shared_ptr<TorchComm> newComm(const py::object& backendName, const py::object& device,
                                   const std::optional<py::object>& name,
                                   std::optional<bool> abortProcess, const OptionalTimeout& timeout,
                                   std::optional<bool> highPriority,
                                   const std::optional<py::object>& store, bool enableReconfigure,
                                   std::optional<Hints> hints,
                                   const std::optional<py::object>& given) {
  const auto backend = argumentOf<std::string>("backend", "str", backendName);
  CommOptions options =
      given ? argumentOf<CommOptions>("options", "CommOptions", *given) : CommOptions();
  if (name) options.name = argumentOf<std::string>("name", "str", *name);
  if (options.name.empty()) options.name = "default";
  if (abortProcess) options.abort_process_on_timeout_or_error = *abortProcess;
  if (timeout) options.timeout = toTimeout(*timeout);
  if (highPriority) options.is_high_priority_stream = *highPriority;
  if (store) {
    options.store =
        argumentOf<c10::intrusive_ptr<c10d::Store>>("store", "torch.distributed.Store", *store);
  }
  if (enableReconfigure) options.enable_reconfigure = true;
  if (hints) options.hints = std::move(*hints);

  if (ctran::logsToPython()) py::module_::import("torchcomms._log").attr("use_python_logging")();
  const at::Device where = toDevice("new_comm", device);
  loadBackend(backend);
  // A communicator that is yet to be configured meets nobody now.
  const bool alone =
      !TorchCommFactory::get().traits(backend).needsRendezvous || options.enable_reconfigure;
  if (!alone && !options.rank && !options.size) {
    const py::tuple place = py::module_::import("torchcomms._rendezvous")
                                .attr("resolve")(options.name, options.store, options.timeout);
    options.rank = place[0].cast<int>();
    options.size = place[1].cast<int>();
    options.store = place[2].cast<c10::intrusive_ptr<c10d::Store>>();
  }
  return new_comm(backend, where, options.name, options);
}

bool isList(py::handle object) {
  return PySequence_Check(object.ptr()) != 0 && !py::isinstance<py::str>(object) &&
         !py::isinstance<py::bytes>(object);
}

[[noreturn]] void wrongRanks(const char* argument, py::handle found) {
  throw py::type_error("split(): argument '" + std::string(argument) +
                       "' must be a list of ranks, or a list of such lists, but is or has a " +
                       Py_TYPE(found.ptr())->tp_name);
}

std::vector<int> ranksOf(const char* argument, py::handle list, const TorchComm& comm) {
  std::vector<int> ranks;
  for (const py::handle rank : list) {
    if (!PyIndex_Check(rank.ptr())) wrongRanks(argument, rank);
    const auto number = rank.cast<Integer>();
    if (const std::optional<int> fits = number.small()) {
      ranks.push_back(*fits);
      continue;
    }
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "Invalid rank " + py::str(number.number).cast<std::string>() +
                           " in ranks. Valid ranks are 0 to " + std::to_string(comm.getSize() - 1),
                       {}, "split");
  }
  return ranks;
}

/// The ranks of this rank's group, from either form: one group, or several of which it is in at
/// most one.
std::vector<int> ownGroup(const char* argument, const py::object& ranks, const TorchComm& comm) {
  const int rank = comm.getRank();
  if (!isList(ranks)) wrongRanks(argument, ranks);
  const py::list list(ranks);
  const bool several = !list.empty() && !PyIndex_Check(list[0].ptr());
  if (!several) return ranksOf(argument, list, comm);
  std::vector<int> own;
  for (const py::handle part : list) {
    if (!isList(part)) wrongRanks(argument, part);
    const std::vector<int> group = ranksOf(argument, part, comm);
    if (std::find(group.begin(), group.end(), rank) == group.end()) continue;
    if (!own.empty()) {
      throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                         "Rank " + std::to_string(rank) + " appears multiple times in ranks", {},
                         "split");
    }
    own = group;
  }
  return own;
}

/// Of a communicator that is made from this one.
CommOptions inherited(const TorchComm& self, std::optional<Hints> hints,
                      const OptionalTimeout& timeout) {
  CommOptions options = self.getOptions();
  if (hints) options.hints = std::move(*hints);
  if (timeout) options.timeout = toTimeout(*timeout);
  return options;
}

std::shared_ptr<TorchComm> split(TorchComm& self, const std::optional<py::object>& ranks,
                                 const std::string& name, std::optional<Hints> hints,
                                 const OptionalTimeout& timeout,
                                 const std::optional<py::object>& rankGroups) {
  if (ranks.has_value() == rankGroups.has_value()) {
    throw py::type_error("split() takes either 'ranks' or 'rank_groups'");
  }
  return self.split(
      ranks ? ownGroup("ranks", *ranks, self) : ownGroup("rank_groups", *rankGroups, self), name,
      inherited(self, std::move(hints), timeout));
}

void bindBatch(py::module_& module) {
  py::enum_<P2POp::Type>(module, "P2POpType", "The direction of a P2POp.")
      .value("SEND", P2POp::Type::SEND)
      .value("RECV", P2POp::Type::RECV);
  py::class_<P2POp>(module, "P2POp", "One send or receive of a batch.")
      .def(py::init([](P2POp::Type type, const at::Tensor& tensor, int peer, const Integer& tag) {
             return P2POp{type, tensor, peer, tag.tag()};
           }),
           py::arg("type"), py::arg("tensor"), py::arg("peer"), py::arg("tag") = 0)
      .def_readwrite("type", &P2POp::type, "Its direction, a P2POpType.")
      .def_readwrite("tensor", &P2POp::tensor, "What is sent, or received into.")
      .def_readwrite("peer", &P2POp::peer, "The other rank.")
      .def_readwrite("tag", &P2POp::tag, "A message goes to a receive of its tag.")
      .def("__repr__", [](const P2POp& self) {
        const bool sends = self.type == P2POp::Type::SEND;
        return std::string("<P2POp ") + (sends ? "send" : "recv") + " of " +
               std::to_string(self.tensor.numel()) + " " +
               c10::toString(self.tensor.scalar_type()) + (sends ? " to rank " : " from rank ") +
               std::to_string(self.peer) + " tag " + std::to_string(self.tag) + ">";
      });
  py::class_<BatchSendRecv>(
      module, "BatchSendRecv",
      "Sends and receives that are issued together, so that none waits for another.")
      .def(
          "send",
          [](BatchSendRecv& self, const py::object& tensor, const Integer& dst,
             const Integer& tag) {
            self.send(toTensor("send", "tensor", tensor),
                      dst.rank("dst", self.comm()->getSize(), "batch_op_issue"), tag.tag());
          },
          py::arg("tensor"), py::arg("dst"), py::arg("tag") = 0,
          "Adds a send of `tensor` to rank `dst`.")
      .def(
          "recv",
          [](BatchSendRecv& self, const py::object& tensor, const Integer& src,
             const Integer& tag) {
            self.recv(toTensor("recv", "tensor", tensor),
                      src.rank("src", self.comm()->getSize(), "batch_op_issue"), tag.tag());
          },
          py::arg("tensor"), py::arg("src"), py::arg("tag") = 0,
          "Adds a receive into `tensor` of what rank `src` sends.")
      .def(
          "issue",
          [](BatchSendRecv& self, bool asyncOp, const std::optional<BatchP2POptions>& options) {
            return self.issue(asyncOp, options.value_or(BatchP2POptions()));
          },
          py::arg("async_op"), py::arg("options") = py::none(),
          "Issues what has been added; the list is kept, so that a second call exchanges again.")
      .def_readwrite("ops", &BatchSendRecv::ops, "The list. A copy: assign to change it.")
      // For compiled code: as tuples (tensor, whether it is sent, peer, tag).
      .def_property("_ops", &tuplesOf, &setTuples)
      .def_property_readonly("_comm", &BatchSendRecv::comm);
}

void bindBackend(py::module_& module) {
  py::class_<TorchCommBackend, PythonBackend, std::shared_ptr<TorchCommBackend>>(
      module, "TorchCommBackend",
      "What carries out the operations of a communicator. Subclasses, made known by "
      "register_backend(), define init(device, name, options), finalize(), split(ranks, name, "
      "options) and the operations of TorchComm, with its arguments in its order; of `options`, "
      "`hints` and `timeout` those that they have parameters for. An operation returns None when "
      "it has ended, a TorchWork, or an object with wait().")
      .def(py::init_alias<>())
      .def("get_rank", &TorchCommBackend::getRank, "The rank of this process.")
      .def("get_size", &TorchCommBackend::getSize, "The number of ranks.")
      .def("get_comm_name", &TorchCommBackend::getCommName, "The name of the communicator.")
      .def("get_backend_name", &TorchCommBackend::getBackendName, "As in new_comm().")
      .def("get_backend_version", &TorchCommBackend::getBackendVersion,
           "Raises CommError where it has none.")
      .def("get_options", &TorchCommBackend::getOptions, py::return_value_policy::copy,
           "A copy of the CommOptions in force.")
      .def("get_device", &TorchCommBackend::getDevice, "The torch.device of its tensors.");
}

std::shared_ptr<TorchCommBackend> unsafeBackend(const TorchComm& self) {
  if (PyErr_WarnEx(PyExc_DeprecationWarning,
                   "unsafe_get_backend() is deprecated, use get_backend_impl()", 1) != 0) {
    throw py::error_already_set();
  }
  return self.getBackendImpl();
}

}  // namespace

at::Device toDevice(const char* function, const py::object& device) {
  if (py::isinstance<py::str>(device)) {
    return py::module_::import("torch").attr("device")(device).cast<at::Device>();
  }
  if (!THPDevice_Check(device.ptr())) {
    throw py::type_error(std::string(function) +
                         "(): argument 'device' must be torch.device or str, not " +
                         std::string(Py_TYPE(device.ptr())->tp_name));
  }
  return device.cast<at::Device>();
}

void bindComm(py::module_& module) {
  bindBackend(module);
  bindBatch(module);

  py::class_<TorchComm, std::shared_ptr<TorchComm>>(
      module, "TorchComm",
      "A group of ranks and the operations among them.\n\n"
      "All ranks call the same operations in the same order, unless one names a peer. Tensors are "
      "dense, contiguous, and on the communicator's device. With async_op=False an operation on "
      "CPU tensors has ended when it returns; with async_op=True it goes on while the program "
      "does, until the work's wait(). Errors are torchcomms.CommError and its descendants.\n\n"
      "One thread at a time, but for abort(), is_aborted() and works.")
      .def("finalize", &TorchComm::finalize,
           "Waits for everything issued, then leaves. Every later operation raises.")
      .def("get_rank", &TorchComm::getRank, "The rank of this process, from 0.")
      .def("get_size", &TorchComm::getSize, "The number of ranks.")
      .def("get_name", &TorchComm::getCommName, "The name of the communicator.")
      .def("get_ranks", &TorchComm::getRanks,
           "The members, as ranks of the communicator that new_comm() made.")
      .def("get_device", &TorchComm::getDevice, "The torch.device of its tensors.")
      .def("get_backend", &TorchComm::getBackend, "The name of the backend.")
      .def("get_backend_version", &TorchComm::getBackendVersion, "The version of the backend.")
      .def("get_options", &TorchComm::getOptions, py::return_value_policy::copy,
           "A copy of the CommOptions in force.")
      .def_property_readonly(
          "_engine_token",
          [](const TorchComm& self) { return self.getBackendImpl()->engineToken(); })
      .def("get_backend_impl", &TorchComm::getBackendImpl, "The TorchCommBackend.")
      .def("unsafe_get_backend", &unsafeBackend, "Deprecated: get_backend_impl().")
      .def("batch_op_create", &TorchComm::batch_op_create, "An empty BatchSendRecv.")
      .def("split", &split, py::arg("ranks") = py::none(), py::arg("name") = "",
           py::arg("hints") = py::none(), py::arg("timeout") = py::none(), py::kw_only(),
           py::arg("rank_groups") = py::none(),
           "A communicator of the listed ranks of this one, in that order, with this one's "
           "options; None on ranks that join none. Collective over all ranks of this one: members "
           "of a group pass the same `ranks`, others []. Or all pass `rank_groups`, a list of such "
           "lists.")
      .def(
          "dup",
          [](TorchComm& self, const std::string& name, std::optional<Hints> hints,
             const OptionalTimeout& timeout) {
            return self.dup(name, inherited(self, std::move(hints), timeout));
          },
          py::arg("name") = "", py::arg("hints") = py::none(), py::arg("timeout") = py::none(),
          "A communicator of the same ranks with this one's options: collective over them.")
      .def(
          "new_window",
          [](TorchComm& self, const py::object& tensor) {
            if (tensor.is_none()) return self.new_window();
            return self.new_window(toTensor("new_window", "tensor", tensor));
          },
          py::arg("tensor") = py::none(),
          "A window onto `tensor`: collective. Without one nothing is exposed until its "
          "tensor_register().")
      .def(
          "window_allocate", &TorchComm::window_allocate, py::arg("window_size"),
          py::arg("cpu_buf") = false, py::arg("signal_size") = py::none(),
          "A window onto `window_size` bytes of fresh memory per rank, zeros, which the others can "
          "map: collective. `signal_size`: bytes of signals, eight per signal; by default 64 "
          "signals. `cpu_buf`: memory of the host, whatever the device.")
      .def("abort", &TorchComm::abort,
           "Ends every blocked and every later operation of all ranks with AbortedError. Any "
           "thread.")
      .def("is_abort_supported", &TorchComm::isAbortSupported, "Whether the backend has abort().")
      .def("is_aborted", &TorchComm::isAborted,
           "Whether the communicator is broken: aborted, timed out, a peer lost. Any thread.")
      .def("_is_finalized", &TorchComm::isFinalized, "Whether finalize() has been called.")
      .def(
          "set_timeout",
          [](TorchComm& self, const py::object& timeout) { self.setTimeout(toTimeout(timeout)); },
          py::arg("timeout"), "Of operations from now on.")
      .def("set_hints", &TorchComm::setHints, py::arg("hints"), "Of operations from now on.")
      .def("__copy__", [](const py::object& self) { return self; })
      .def(
          "__deepcopy__",
          [](const py::object& self, const py::dict& memo) {
            memo[py::int_(reinterpret_cast<uintptr_t>(self.ptr()))] = self;
            return self;
          },
          py::arg("memo"))
      .def("__repr__", [](const TorchComm& self) {
        return "<TorchComm '" + std::string(self.getCommName()) + "' " +
               std::string(self.getBackend()) + " rank " + std::to_string(self.getRank()) + " of " +
               std::to_string(self.getSize()) + ">";
      });

  module.def("new_comm", &newComm, py::arg("backend"), py::arg("device"),
             py::arg("name") = py::none(),
             py::arg("abort_process_on_timeout_or_error") = py::none(),
             py::arg("timeout") = py::none(), py::arg("is_high_priority_stream") = py::none(),
             py::arg("store") = py::none(), py::arg("enable_reconfigure") = false,
             py::arg("hints") = py::none(), py::arg("options") = py::none(),
             "Makes a communicator: collective over its ranks.\n\n"
             "backend: its name; torchcomms.built_backends() lists them.\n"
             "device: of its tensors, a torch.device or its name. A GPU without an index is the "
             "current one, unless that is the first: then rank r takes, and makes current for this "
             "thread, the one with index r modulo their number.\n"
             "name: the same on every rank.\n"
             "options: CommOptions, of which the other arguments override parts.\n"
             "store: the torch.distributed.Store through which the ranks find each other; without "
             "one, what started the process is recognised (torchrun, MPI, Slurm, "
             "TORCHCOMM_RANK and TORCHCOMM_SIZE), else the communicator has one rank.\n"
             "timeout: of the creation and, by default, of operations.\n"
             "Raises CommError.");
  module.def("_choose_device", &stream::chooseDevice, py::arg("device"), py::arg("rank"),
             "The device on which new_comm() makes a communicator of `device` on rank `rank`.");
  module.def(
      "_is_backend_registered",
      [](const std::string& backend) {
        return TorchCommFactory::get().is_backend_registered(backend);
      },
      py::arg("backend"), "Whether new_comm() can make this backend as things are.");
  module.def("_load_plugin", &loadPlugin, py::arg("backend"),
             "Loads the backend from the library that TORCHCOMMS_BACKEND_LIB_PATH_<NAME> names; "
             "False if it names none.");
  module.def(
      "_registered_backends", [] { return TorchCommFactory::get().registered_backends(); },
      "The names that _is_backend_registered() knows.");
}

}  // namespace torch::comms
