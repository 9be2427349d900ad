#include <comms/torchcomms/TorchWork.hpp>

#include "ctran/engine/progress.h"
#include "ctran/stream/watchdog.h"
#include "torchcomms/csrc/backends/c10d/task_queue.hpp"
#include "torchcomms/csrc/bindings/arguments.hpp"
#include "torchcomms/csrc/bindings/backends/python/backend.hpp"
#include "torchcomms/csrc/bindings/bindings.hpp"
#include "torchcomms/csrc/bindings/errors.hpp"
#include "torchcomms/csrc/c10d/callback_thread.hpp"
#include "torchcomms/csrc/exit_gate.hpp"
#include "torchcomms/csrc/hook_registry.hpp"
#include "torchcomms/csrc/hooks/debug_server.hpp"

namespace torch::comms {

// torch itself imports this module half-way through its own start: nothing here may need more of
// torch than its C++ libraries.
PYBIND11_MODULE(_comms, module) {
  module.doc() = "Communicators, works and options: the C++ part of torchcomms.";
  registerErrorTranslation();
  bindTypes(module);
  bindOptions(module);
  bindWork(module);
  bindWindow(module);
  bindComm(module);
  bindHooks(module);
  bindReadyHooks(module);
  bindMemory(module);
  bindReconfigure(module);
  bindPersistent(module);
  bindConfig(module);
  bindLog(module);
  bindBackendWrapper(module);
  addPythonBackends(module);
#if TORCHCOMMS_USE_TRANSPORT
  bindTransport(module);
#endif
  prepareArguments();
  addOperations(module.attr("TorchComm"));
  registerDebugHandlers();
  module.def("_retire", [] {
    const HostWait released;  // what ends meanwhile may let go of tensors
    HookRegistry::settleAll(
        std::chrono::seconds(30));  // they may be writing what explains a failure
    ctran::Progress::retire();
    ctran::Watchdog::stop();
    // Those that wait for other processes go on: they hold nothing up, and end with this one.
    TaskQueue::settleAll(std::chrono::seconds(1));
    retireCallbacks(std::chrono::seconds(1));
    ExitGate::close(std::chrono::seconds(1));
  });
}

}  // namespace torch::comms
