#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include "torchcomms/csrc/bindings/bindings.hpp"
#include "torchcomms/csrc/bindings/callbacks.hpp"

namespace py = pybind11;

namespace torch::comms {

namespace {

void bindPreHookArgs(py::module_& module) {
  py::class_<OpPreHookArgs>(module, "OpPreHookArgs",
                            "What the arguments of operations that move data have in common.")
      .def_readonly("async_op", &OpPreHookArgs::async_op)
      .def_readonly("timeout", &OpPreHookArgs::timeout,
                    "In force: the call's, else the communicator's.");

  const auto tensorAndPeer = [&]<typename Args>(const char* name, Args*) {
    return py::class_<Args, OpPreHookArgs>(module, name)
        .def_readonly("tensor", &Args::tensor)
        .def_readonly("peer", &Args::peer);
  };
  const auto onlyPeer = [&]<typename Args>(const char* name, Args*) {
    py::class_<Args, OpPreHookArgs>(module, name).def_readonly("peer", &Args::peer);
  };
  const auto inputAndOutput = [&]<typename Args>(const char* name, Args*) {
    return py::class_<Args, OpPreHookArgs>(module, name)
        .def_readonly("input", &Args::input)
        .def_readonly("output", &Args::output);
  };
  const auto reduction = [&]<typename Args>(const char* name, Args* none) {
    inputAndOutput(name, none).def_readonly("op", &Args::op);
  };
  const auto rooted = [&]<typename Args>(const char* name, Args* none) {
    inputAndOutput(name, none).def_readonly("root", &Args::root);
  };
#define ARGS(name) #name, static_cast < name*>(nullptr)

  tensorAndPeer(ARGS(SendPreHookArgs));
  tensorAndPeer(ARGS(RecvPreHookArgs));
  py::class_<BatchOpIssuePreHookArgs, OpPreHookArgs>(module, "BatchOpIssuePreHookArgs")
      .def_readonly("ops", &BatchOpIssuePreHookArgs::ops)
      .def_readonly("num_ops", &BatchOpIssuePreHookArgs::num_ops);
  py::class_<BroadcastPreHookArgs, OpPreHookArgs>(module, "BroadcastPreHookArgs")
      .def_readonly("tensor", &BroadcastPreHookArgs::tensor)
      .def_readonly("root", &BroadcastPreHookArgs::root);
  py::class_<AllReducePreHookArgs, OpPreHookArgs>(module, "AllReducePreHookArgs")
      .def_readonly("tensor", &AllReducePreHookArgs::tensor)
      .def_readonly("op", &AllReducePreHookArgs::op);
  py::class_<ReducePreHookArgs, OpPreHookArgs>(module, "ReducePreHookArgs")
      .def_readonly("tensor", &ReducePreHookArgs::tensor)
      .def_readonly("root", &ReducePreHookArgs::root)
      .def_readonly("op", &ReducePreHookArgs::op);
  inputAndOutput(ARGS(AllGatherPreHookArgs));
  inputAndOutput(ARGS(AllGatherVPreHookArgs));
  inputAndOutput(ARGS(AllGatherSinglePreHookArgs));
  reduction(ARGS(ReduceScatterPreHookArgs));
  reduction(ARGS(ReduceScatterVPreHookArgs));
  reduction(ARGS(ReduceScatterSinglePreHookArgs));
  inputAndOutput(ARGS(AllToAllSinglePreHookArgs));
  inputAndOutput(ARGS(AllToAllVSinglePreHookArgs))
      .def_readonly("input_split_sizes", &AllToAllVSinglePreHookArgs::input_split_sizes)
      .def_readonly("output_split_sizes", &AllToAllVSinglePreHookArgs::output_split_sizes);
  inputAndOutput(ARGS(AllToAllVDynamicPreHookArgs))
      .def_readonly("input_split_sizes", &AllToAllVDynamicPreHookArgs::input_split_sizes)
      .def_readonly("output_split_sizes", &AllToAllVDynamicPreHookArgs::output_split_sizes);
  inputAndOutput(ARGS(AllToAllPreHookArgs));
  py::class_<BarrierPreHookArgs, OpPreHookArgs>(module, "BarrierPreHookArgs");
  rooted(ARGS(ScatterPreHookArgs));
  rooted(ARGS(GatherPreHookArgs));
  rooted(ARGS(GatherSinglePreHookArgs));
  py::class_<SplitPreHookArgs>(module, "SplitPreHookArgs")
      .def_readonly("ranks", &SplitPreHookArgs::ranks)
      .def_readonly("name", &SplitPreHookArgs::name);
  py::class_<NewWindowPreHookArgs>(module, "NewWindowPreHookArgs")
      .def_readonly("tensor", &NewWindowPreHookArgs::tensor);
  tensorAndPeer(ARGS(PutPreHookArgs)).def_readonly("offset", &PutPreHookArgs::offset);
  tensorAndPeer(ARGS(GetPreHookArgs)).def_readonly("offset", &GetPreHookArgs::offset);
  onlyPeer(ARGS(FlushPreHookArgs));
  onlyPeer(ARGS(SignalPreHookArgs));
  onlyPeer(ARGS(WaitSignalPreHookArgs));
  py::class_<FinalizePreHookArgs>(module, "FinalizePreHookArgs");
  py::class_<ReconfigurePreHookArgs>(module, "ReconfigurePreHookArgs")
      .def_readonly("uuid", &ReconfigurePreHookArgs::uuid)
      .def_readonly("init_handles", &ReconfigurePreHookArgs::init_handles);
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
  py::class_<BatchOpIssuePostHookArgs>(module, "BatchOpIssuePostHookArgs")
      .def_property_readonly("work", &workOf<BatchOpIssuePostHookArgs>,
                             "The TorchWork, or None when the program has let go of it.");
  py::class_<SplitPostHookArgs>(module, "SplitPostHookArgs")
      .def_property_readonly(
          "new_comm", [](const SplitPostHookArgs& self) { return self.new_comm.lock(); },
          "The TorchComm; None on a rank that joined no group, and when it has gone.");
  py::class_<NewWindowPostHookArgs>(module, "NewWindowPostHookArgs")
      .def_property_readonly(
          "window", [](const NewWindowPostHookArgs& self) { return self.window.lock(); },
          "The TorchCommWindow, or None when it has gone.");
  py::class_<FinalizePostHookArgs>(module, "FinalizePostHookArgs");
  py::class_<ReconfigurePostHookArgs>(module, "ReconfigurePostHookArgs")
      .def_readonly("rank", &ReconfigurePostHookArgs::rank)
      .def_readonly("size", &ReconfigurePostHookArgs::size);
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
          [](TorchComm& self, py::function callback) {
            return self.registerPreHook([callback = Callback(std::move(callback))](
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
          [](TorchComm& self, py::function callback) {
            return self.registerPostHook(
                [callback = Callback(std::move(callback))](uint64_t id, const PostHookArgs& args) {
                  call(callback, id, args);
                });
          },
          py::arg("callback"),
          "Calls `callback(op_id, args)` when an operation has been issued; with async_op=False "
          "that is when it has ended. Not after one that has raised.")
      .def(
          "register_abort_hook",
          [](TorchComm& self, py::function callback) {
            return self.registerAbortHook(
                [callback = Callback(std::move(callback))] { callback.quietly(); });
          },
          py::arg("callback"),
          "Calls `callback()` once, when this rank learns that the communicator is broken: at "
          "abort(), when an operation has failed, or before the process ends for an error that "
          "nobody looked at. On any thread.");

  using Register = void (TorchWork::*)(TorchWork::Hook);
  const auto workHook = [](Register add, bool quiet) {
    return [add, quiet](TorchWork& self, py::function function) {
      Callback callback(std::move(function));
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
      .def("register_start_hook", workHook(&TorchWork::registerWorkStartHook, true),
           py::arg("callback"),
           "Calls `callback()` when the operation starts, at once if it has. On any thread; it "
           "must not wait.")
      .def("register_end_hook", workHook(&TorchWork::registerWorkEndHook, true),
           py::arg("callback"),
           "Calls `callback()` when the operation ends, well or not, at once if it has. On any "
           "thread; it must not wait.")
      .def("register_wait_pre_hook", workHook(&TorchWork::registerWorkWaitPreHook, false),
           py::arg("callback"),
           "Calls `callback()` before every wait for the operation. What it raises, the wait "
           "raises. A work of async_op=False takes no hooks of waits, but in a post-hook.")
      .def("register_wait_post_hook", workHook(&TorchWork::registerWorkWaitPostHook, false),
           py::arg("callback"),
           "As register_wait_pre_hook, after every wait that found that the operation has "
           "succeeded.")
      .def(
          "add_done_callback",
          [](const c10::intrusive_ptr<TorchWork>& self, py::function function) {
            self->setCallback(
                [callback = Callback(std::move(function)), self] { callback.quietly(self); });
          },
          py::arg("callback"),
          "Calls `callback(work)` when the operation ends, well or not, at once if it has. On any "
          "thread; it must not wait.");
}

}  // namespace torch::comms
