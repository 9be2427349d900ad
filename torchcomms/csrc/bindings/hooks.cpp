#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include <cctype>

#include "torchcomms/csrc/bindings/arguments.hpp"
#include "torchcomms/csrc/bindings/bindings.hpp"
#include "torchcomms/csrc/bindings/callbacks.hpp"

namespace py = pybind11;

namespace torch::comms {

namespace {

// What the fields of arguments are.
constexpr const char* kTensor = "The tensor that is sent, received into, or read and written.";
constexpr const char* kPeer = "The other rank; -1 where it may be any.";
constexpr const char* kRoot = "The rank that gives to all, or gets from all.";
constexpr const char* kOp = "The ReduceOp.";
constexpr const char* kInput = "What is read: a Tensor, or a list of one for each rank.";
constexpr const char* kOutput = "What is written: a Tensor, or a list of one for each rank.";
constexpr const char* kSplits = "Rows of dimension 0 for each rank.";
constexpr const char* kOffset =
    "Elements of the tensor, from the start of the other rank's memory.";

/// Of "AllGatherPreHookArgs", what they are: those of all_gather.
std::string about(const std::string& name) {
  std::string text = "What hooks are told of `";
  const size_t end = name.rfind(name.rfind("Pre") == std::string::npos ? "Post" : "Pre");
  for (size_t i = 0; i < end; ++i) {
    const auto letter = static_cast<unsigned char>(name[i]);
    if (i > 0 && std::isupper(letter) != 0) text += '_';
    text += static_cast<char>(std::tolower(letter));
  }
  return text + "`.";
}

void bindPreHookArgs(py::module_& module) {
  py::class_<OpPreHookArgs>(module, "OpPreHookArgs",
                            "What the arguments of operations that move data have in common.")
      .def_readonly("async_op", &OpPreHookArgs::async_op,
                    "Whether the call returns before the operation has ended.")
      .def_readonly("timeout", &OpPreHookArgs::timeout,
                    "In force: the call's, else the communicator's.");

  const auto tensorAndPeer = [&]<typename Args>(const char* name, Args*) {
    return py::class_<Args, OpPreHookArgs>(module, name, about(name).c_str())
        .def_readonly("tensor", &Args::tensor, kTensor)
        .def_readonly("peer", &Args::peer, kPeer);
  };
  const auto onlyPeer = [&]<typename Args>(const char* name, Args*) {
    py::class_<Args, OpPreHookArgs>(module, name, about(name).c_str())
        .def_readonly("peer", &Args::peer, kPeer);
  };
  const auto inputAndOutput = [&]<typename Args>(const char* name, Args*) {
    return py::class_<Args, OpPreHookArgs>(module, name, about(name).c_str())
        .def_readonly("input", &Args::input, kInput)
        .def_readonly("output", &Args::output, kOutput);
  };
  const auto reduction = [&]<typename Args>(const char* name, Args* none) {
    inputAndOutput(name, none).def_readonly("op", &Args::op, kOp);
  };
  const auto rooted = [&]<typename Args>(const char* name, Args* none) {
    inputAndOutput(name, none).def_readonly("root", &Args::root, kRoot);
  };
#define ARGS(name) #name, static_cast < name*>(nullptr)

  tensorAndPeer(ARGS(SendPreHookArgs));
  tensorAndPeer(ARGS(RecvPreHookArgs));
  py::class_<BatchOpIssuePreHookArgs, OpPreHookArgs>(module, "BatchOpIssuePreHookArgs",
                                                     about("BatchOpIssuePreHookArgs").c_str())
      .def_readonly("ops", &BatchOpIssuePreHookArgs::ops, "The P2POps.")
      .def_readonly("num_ops", &BatchOpIssuePreHookArgs::num_ops, "How many.");
  py::class_<BroadcastPreHookArgs, OpPreHookArgs>(module, "BroadcastPreHookArgs",
                                                  about("BroadcastPreHookArgs").c_str())
      .def_readonly("tensor", &BroadcastPreHookArgs::tensor, kTensor)
      .def_readonly("root", &BroadcastPreHookArgs::root, kRoot);
  py::class_<AllReducePreHookArgs, OpPreHookArgs>(module, "AllReducePreHookArgs",
                                                  about("AllReducePreHookArgs").c_str())
      .def_readonly("tensor", &AllReducePreHookArgs::tensor, kTensor)
      .def_readonly("op", &AllReducePreHookArgs::op, kOp);
  py::class_<ReducePreHookArgs, OpPreHookArgs>(module, "ReducePreHookArgs",
                                               about("ReducePreHookArgs").c_str())
      .def_readonly("tensor", &ReducePreHookArgs::tensor, kTensor)
      .def_readonly("root", &ReducePreHookArgs::root, kRoot)
      .def_readonly("op", &ReducePreHookArgs::op, kOp);
  inputAndOutput(ARGS(AllGatherPreHookArgs));
  inputAndOutput(ARGS(AllGatherVPreHookArgs));
  inputAndOutput(ARGS(AllGatherSinglePreHookArgs));
  reduction(ARGS(ReduceScatterPreHookArgs));
  reduction(ARGS(ReduceScatterVPreHookArgs));
  reduction(ARGS(ReduceScatterSinglePreHookArgs));
  inputAndOutput(ARGS(AllToAllSinglePreHookArgs));
  inputAndOutput(ARGS(AllToAllVSinglePreHookArgs))
      .def_readonly("input_split_sizes", &AllToAllVSinglePreHookArgs::input_split_sizes, kSplits)
      .def_readonly("output_split_sizes", &AllToAllVSinglePreHookArgs::output_split_sizes, kSplits);
  inputAndOutput(ARGS(AllToAllVDynamicPreHookArgs))
      .def_readonly("input_split_sizes", &AllToAllVDynamicPreHookArgs::input_split_sizes, kSplits)
      .def_readonly("output_split_sizes", &AllToAllVDynamicPreHookArgs::output_split_sizes,
                    kSplits);
  inputAndOutput(ARGS(AllToAllPreHookArgs));
  py::class_<BarrierPreHookArgs, OpPreHookArgs>(module, "BarrierPreHookArgs",
                                                about("BarrierPreHookArgs").c_str());
  rooted(ARGS(ScatterPreHookArgs));
  rooted(ARGS(GatherPreHookArgs));
  rooted(ARGS(GatherSinglePreHookArgs));
  py::class_<SplitPreHookArgs>(module, "SplitPreHookArgs", about("SplitPreHookArgs").c_str())
      .def_readonly("ranks", &SplitPreHookArgs::ranks,
                    "Those of the child, in its order; empty on a rank that joins none.")
      .def_readonly("name", &SplitPreHookArgs::name, "Of the child.");
  py::class_<NewWindowPreHookArgs>(module, "NewWindowPreHookArgs",
                                   about("NewWindowPreHookArgs").c_str())
      .def_readonly("tensor", &NewWindowPreHookArgs::tensor,
                    "What is registered at once, or None.");
  tensorAndPeer(ARGS(PutPreHookArgs)).def_readonly("offset", &PutPreHookArgs::offset, kOffset);
  tensorAndPeer(ARGS(GetPreHookArgs)).def_readonly("offset", &GetPreHookArgs::offset, kOffset);
  onlyPeer(ARGS(FlushPreHookArgs));
  onlyPeer(ARGS(SignalPreHookArgs));
  onlyPeer(ARGS(WaitSignalPreHookArgs));
  py::class_<FinalizePreHookArgs>(module, "FinalizePreHookArgs",
                                  about("FinalizePreHookArgs").c_str());
  py::class_<ReconfigurePreHookArgs>(module, "ReconfigurePreHookArgs",
                                     about("ReconfigurePreHookArgs").c_str())
      .def_readonly("uuid", &ReconfigurePreHookArgs::uuid, "As it was passed.")
      .def_readonly("init_handles", &ReconfigurePreHookArgs::init_handles, "Of the new members.");
#undef ARGS
}

template <typename Args>
py::object workOf(const Args& args) {
  const c10::intrusive_ptr<TorchWork> work = args.work.lock();
  return work ? py::reinterpret_steal<py::object>(wrapWork(work)) : py::none();
}

void bindPostHookArgs(py::module_& module) {
  py::class_<CollectivePostHookArgs>(module, "CollectivePostHookArgs",
                                     "Of every operation that moves data but batches.")
      .def_property_readonly("work", &workOf<CollectivePostHookArgs>,
                             "The TorchWork, or None when the program has let go of it.");
  py::class_<BatchOpIssuePostHookArgs>(module, "BatchOpIssuePostHookArgs",
                                       about("BatchOpIssuePostHookArgs").c_str())
      .def_property_readonly("work", &workOf<BatchOpIssuePostHookArgs>,
                             "The TorchWork, or None when the program has let go of it.");
  py::class_<SplitPostHookArgs>(module, "SplitPostHookArgs", about("SplitPostHookArgs").c_str())
      .def_property_readonly(
          "new_comm", [](const SplitPostHookArgs& self) { return self.new_comm.lock(); },
          "The TorchComm; None on a rank that joined no group, and when it has gone.");
  py::class_<NewWindowPostHookArgs>(module, "NewWindowPostHookArgs",
                                    about("NewWindowPostHookArgs").c_str())
      .def_property_readonly(
          "window", [](const NewWindowPostHookArgs& self) { return self.window.lock(); },
          "The TorchCommWindow, or None when it has gone.");
  py::class_<FinalizePostHookArgs>(module, "FinalizePostHookArgs",
                                   about("FinalizePostHookArgs").c_str());
  py::class_<ReconfigurePostHookArgs>(module, "ReconfigurePostHookArgs",
                                      about("ReconfigurePostHookArgs").c_str())
      .def_readonly("rank", &ReconfigurePostHookArgs::rank, "Of this process, from now on.")
      .def_readonly("size", &ReconfigurePostHookArgs::size, "From now on.");
}

void call(const Callback& callback, OpName name, uint64_t id, const PreHookArgs& args) {
  std::visit([&](const auto& typed) { callback(name, id, typed); }, args);
}

void call(const Callback& callback, uint64_t id, const PostHookArgs& args) {
  std::visit([&](const auto& typed) { callback(id, typed); }, args);
}

}  // namespace

void bindHooks(py::module_& module) {
  bindPreHookArgs(module);
  bindPostHookArgs(module);

  py::class_<RemovableHandle>(module, "RemovableHandle",
                              "Takes a hook away. Letting go of the handle does not.")
      .def("remove", &RemovableHandle::remove,
           "The hook is not called any more. Any thread, also inside the hook; may be repeated.");

  py::reinterpret_borrow<py::class_<TorchComm, std::shared_ptr<TorchComm>>>(
      module.attr("TorchComm"))
      .def(
          "register_pre_hook",
          [](TorchComm& self, const py::object& callback) {
            return self.registerPreHook(
                [callback = Callback(toFunction("register_pre_hook", "callback", callback))](
                    OpName name, uint64_t id, const PreHookArgs& args) {
                  call(callback, name, id, args);
                });
          },
          py::arg("callback"),
          "Calls `callback(name, op_id, args)` before every operation, when its arguments have "
          "been "
          "checked: an OpName, a number that counts the operations of the process, and the "
          "arguments (AllReducePreHookArgs and so on). What it raises ends the call: nothing has "
          "been sent. Hooks are called in the order of their registration, until the handle "
          "removes them or the communicator is finalized.")
      .def(
          "register_post_hook",
          [](TorchComm& self, const py::object& callback) {
            return self.registerPostHook(
                [callback = Callback(toFunction("register_post_hook", "callback", callback))](
                    uint64_t id, const PostHookArgs& args) { call(callback, id, args); });
          },
          py::arg("callback"),
          "Calls `callback(op_id, args)` when an operation has been issued; with async_op=False "
          "that is when it has ended. Not after one that has raised.")
      .def(
          "register_abort_hook",
          [](TorchComm& self, const py::object& callback) {
            return self.registerAbortHook(
                [callback = Callback(toFunction("register_abort_hook", "callback", callback))] {
                  callback.quietly();
                });
          },
          py::arg("callback"),
          "Calls `callback()` once, when this rank learns that the communicator is broken: at "
          "abort(), when an operation has failed, or before the process ends for an error that "
          "nobody looked at. On any thread.");

  using Register = void (TorchWork::*)(TorchWork::Hook);
  const auto workHook = [](const char* name, Register add, bool quiet) {
    return [name, add, quiet](TorchWork& self, const py::object& function) {
      Callback callback(toFunction(name, "callback", function));
      (self.*add)([callback = std::move(callback), quiet] {
        if (quiet) {
          callback.quietly();
        } else {
          callback();
        }
      });
    };
  };
  py::reinterpret_borrow<py::class_<TorchWork, c10::intrusive_ptr<TorchWork>>>(
      module.attr("TorchWork"))
      .def("register_start_hook",
           workHook("register_start_hook", &TorchWork::registerWorkStartHook, true),
           py::arg("callback"),
           "Calls `callback()` when the operation starts, at once if it has. On any thread; it "
           "must not wait.")
      .def("register_end_hook",
           workHook("register_end_hook", &TorchWork::registerWorkEndHook, true),
           py::arg("callback"),
           "Calls `callback()` when the operation ends, well or not, at once if it has. On any "
           "thread; it must not wait.")
      .def("register_wait_pre_hook",
           workHook("register_wait_pre_hook", &TorchWork::registerWorkWaitPreHook, false),
           py::arg("callback"),
           "Calls `callback()` before every wait for the operation. What it raises, the wait "
           "raises. A work of async_op=False takes no hooks of waits, but in a post-hook.")
      .def("register_wait_post_hook",
           workHook("register_wait_post_hook", &TorchWork::registerWorkWaitPostHook, false),
           py::arg("callback"),
           "As register_wait_pre_hook, after every wait that found that the operation has "
           "succeeded.")
      .def(
          "add_done_callback",
          [](const c10::intrusive_ptr<TorchWork>& self, const py::object& function) {
            self->setCallback(
                [callback = Callback(toFunction("add_done_callback", "callback", function)), self] {
                  callback.quietly(self);
                });
          },
          py::arg("callback"),
          "Calls `callback(work)` when the operation ends, well or not, at once if it has. On any "
          "thread; it must not wait.");
}

}  // namespace torch::comms
