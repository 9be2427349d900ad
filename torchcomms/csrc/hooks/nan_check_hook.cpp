#include <ATen/ATen.h>

#include <comms/torchcomms/TorchComm.hpp>
#include <comms/torchcomms/hooks/NanCheckHook.hpp>

#include "ctran/base/error.h"
#include "torchcomms/csrc/hooks/operation_view.hpp"

namespace torch::comms {

namespace {

bool hasNan(const at::Tensor& tensor) {
  if (!tensor.is_floating_point() && !tensor.is_complex()) return false;
  // Not every operator knows the types of 8 bits and fewer.
  const at::Tensor known = tensor.element_size() < 2 ? tensor.to(at::kFloat) : tensor;
  return at::isnan(known).any().item<bool>();
}

/// What is needed of one communicator and one call on it.
struct Checked {
  std::string comm;
  int rank = 0;
  OpName op = OpName::barrier;
  bool asynchronous = false;
  std::vector<at::Tensor> outputs;

  void look(const std::vector<at::Tensor>& tensors, const char* label) const {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!hasNan(tensors[i])) continue;
      throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                         "NaN detected in " + std::string(label) + " tensor for '" +
                             std::string(toString(op)) + "' on comm '" + comm + "': rank " +
                             std::to_string(rank) + ", tensor " + std::to_string(i) + " of shape " +
                             shapesOf({tensors[i]}),
                         {rank}, std::string(toString(op)));
    }
  }
};

/// The tensors that this rank's call reads.
std::vector<at::Tensor> readBy(const OperationView& view, OpName name, int rank) {
  const bool atRoot = !view.root || *view.root == rank;
  if ((name == OpName::broadcast || name == OpName::scatter) && !atRoot) return {};
  return view.inputs;
}

/// The tensors that this rank's call writes.
std::vector<at::Tensor> writtenBy(const OperationView& view, OpName name, int rank) {
  const bool atRoot = !view.root || *view.root == rank;
  const bool rootOnly =
      name == OpName::reduce || name == OpName::gather || name == OpName::gather_single;
  if (rootOnly && !atRoot) return {};
  return view.outputs;
}

}  // namespace

void NanCheckHook::register_with_comm(TorchComm& comm) {
  const auto current = std::make_shared<Checked>();
  current->comm = comm.getCommName();
  current->rank = comm.getRank();
  handles_.push_back(comm.registerPreHook([current, inputs = checkInputs_, outputs = checkOutputs_](
                                              OpName name, uint64_t, const PreHookArgs& args) {
    const OperationView view = viewOf(args);
    current->op = name;
    current->asynchronous = view.async_op;
    if (outputs) current->outputs = writtenBy(view, name, current->rank);
    if (inputs) current->look(readBy(view, name, current->rank), "input");
  }));
  handles_.push_back(
      comm.registerPostHook([current, outputs = checkOutputs_](uint64_t, const PostHookArgs& args) {
        if (const auto* changed = std::get_if<ReconfigurePostHookArgs>(&args)) {
          current->rank = changed->rank;
        }
        if (!outputs) return;
        c10::intrusive_ptr<TorchWork> work;
        if (const auto* one = std::get_if<CollectivePostHookArgs>(&args)) work = one->work.lock();
        if (const auto* batch = std::get_if<BatchOpIssuePostHookArgs>(&args))
          work = batch->work.lock();
        const Checked call = *current;
        current->outputs.clear();
        if (!work || !call.asynchronous) return call.look(call.outputs, "output");
        work->registerWorkWaitPostHook([call] { call.look(call.outputs, "output"); });
      }));
}

void NanCheckHook::unregister() {
  for (const RemovableHandle& handle : handles_) handle.remove();
  handles_.clear();
}

}  // namespace torch::comms
