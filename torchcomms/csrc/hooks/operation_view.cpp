#include "torchcomms/csrc/hooks/operation_view.hpp"

#include <type_traits>

namespace torch::comms {

namespace {

std::vector<at::Tensor> listOf(const at::Tensor& tensor) {
  return tensor.defined() ? std::vector<at::Tensor>{tensor} : std::vector<at::Tensor>{};
}
const std::vector<at::Tensor>& listOf(const std::vector<at::Tensor>& tensors) { return tensors; }

template <typename Args>
OperationView view(const Args& args) {
  OperationView made;
  if constexpr (std::is_base_of_v<OpPreHookArgs, Args>) {
    made.async_op = args.async_op;
    made.timeout = args.timeout;
  }
  if constexpr (requires { args.input; }) {
    made.inputs = listOf(args.input);
    made.outputs = listOf(args.output);
  } else if constexpr (requires { args.tensor; }) {
    if constexpr (!std::is_same_v<Args, RecvPreHookArgs>) made.inputs = listOf(args.tensor);
    if constexpr (!std::is_same_v<Args, SendPreHookArgs>) made.outputs = listOf(args.tensor);
  }
  if constexpr (requires { args.ops; }) {
    for (const P2POp& op : args.ops) {
      (op.type == P2POp::Type::SEND ? made.inputs : made.outputs).push_back(op.tensor);
    }
  }
  if constexpr (requires { args.peer; }) made.peer = args.peer;
  if constexpr (requires { args.root; }) made.root = args.root;
  if constexpr (requires { args.op; }) made.op = args.op;
  return made;
}

}  // namespace

OperationView viewOf(const PreHookArgs& args) {
  return std::visit([](const auto& typed) { return view(typed); }, args);
}

std::string shapesOf(const std::vector<at::Tensor>& tensors) {
  std::string text;
  for (const at::Tensor& tensor : tensors) {
    text += text.empty() ? "[" : ", [";
    for (int64_t d = 0; d < tensor.dim(); ++d) {
      if (d > 0) text += ", ";
      text += std::to_string(tensor.size(d));
    }
    text += "]";
  }
  return text;
}

}  // namespace torch::comms
