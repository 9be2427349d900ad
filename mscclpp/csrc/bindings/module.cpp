// mscclpp._runtime: the engine for mscclpp, on its public interface. Knows nothing of torch.
#include "mscclpp/csrc/bindings/communicator.h"

namespace {

PyModuleDef definition{
    PyModuleDef_HEAD_INIT,
    "mscclpp._runtime",
    "The engine's communicators, operations and shared memory.",
    -1,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__runtime() {
  using namespace mscclpp::python;
  Ref module(PyModule_Create(&definition));
  if (!module || !addCommunicator(module.get()) || !addOperation(module.get()) ||
      !addInitPoint(module.get()) || !addGpu(module.get()) || !addMemory(module.get()) ||
      !addSignals(module.get()) || !addEnvironment(module.get())) {
    return nullptr;
  }
  return module.release();
}
