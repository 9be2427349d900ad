#pragma once

#include <torch/csrc/utils/pybind.h>

#include <comms/torchcomms/TorchComm.hpp>

namespace torch::comms {

/// ReduceOp, RedOpType, OpName.
void bindTypes(pybind11::module_& module);
/// CommOptions and the options of the operations.
void bindOptions(pybind11::module_& module);
/// TorchWork, WorkStatus; how Python takes part in waits.
void bindWork(pybind11::module_& module);
/// TorchCommWindow and what belongs to it.
void bindWindow(pybind11::module_& module);
/// TorchComm but for its operations; new_comm; batches; the factory.
void bindComm(pybind11::module_& module);
/// Hooks of communicators and works, and what they are told. After bindWork and bindComm.
void bindHooks(pybind11::module_& module);
/// Allocators, tensor registration. After bindComm.
void bindMemory(pybind11::module_& module);
/// reconfigure. After bindComm.
void bindReconfigure(pybind11::module_& module);
/// FlightRecorderHook, clog, NanCheckHook.
void bindReadyHooks(pybind11::module_& module);
/// Persistent operations. After bindComm.
void bindPersistent(pybind11::module_& module);
/// The list of environment variables.
void bindConfig(pybind11::module_& module);
/// How the module logging gets what the engine logs.
void bindLog(pybind11::module_& module);
/// _BackendWrapper. After TorchComm.
void bindBackendWrapper(pybind11::module_& module);
/// RDMA transports; where USE_TRANSPORT is on.
void bindTransport(pybind11::module_& module);
/// The operations of TorchComm. After all of the above.
void addOperations(pybind11::handle commClass);

/// A torch.device, or what names one; `function` is what has been called.
at::Device toDevice(const char* function, const pybind11::object& device);
/// What the communicator's tensors are best made by, see bindMemory.
pybind11::object memAllocatorOf(const TorchComm& comm);

/// A Python work; null with an error set when that fails.
PyObject* wrapWork(const c10::intrusive_ptr<TorchWork>& work);

}  // namespace torch::comms

namespace pybind11 {

/// Whatever a work is in C++, in Python it is a TorchWork: there is no other class to look for,
/// which would take longer than making the object.
template <>
struct polymorphic_type_hook<torch::comms::TorchWork> {
  static const void* get(const torch::comms::TorchWork* work, const std::type_info*&) {
    return work;
  }
};

}  // namespace pybind11
