#include "torchcomms/csrc/backends/ctran/describe.hpp"

#include "torchcomms/csrc/backends/ctran/blocks.hpp"

namespace torch::comms {

namespace {

using ctran::Collective;
using Kind = ctran::CollectiveKind;

/// Which collective an operation is, and how it sees the tensors.
struct Description {
  Kind kind = Kind::Barrier;
  bool ofOutput = false;  ///< the output says how many elements of which type, else the input
  bool inputBlocks = false;
  bool outputBlocks = false;
};

constexpr Description descriptionOf(OpName op) {
  switch (op) {
    case OpName::send:
      return {Kind::Send};
    case OpName::recv:
      return {Kind::Recv, true};
    case OpName::broadcast:
      return {Kind::Broadcast, true};
    case OpName::all_reduce:
      return {Kind::AllReduce};
    case OpName::reduce:
      return {Kind::Reduce};
    case OpName::all_gather:
      return {.kind = Kind::AllGather, .outputBlocks = true};
    case OpName::all_gather_v:
      return {.kind = Kind::AllGatherV, .outputBlocks = true};
    case OpName::all_gather_single:
      return {Kind::AllGather};
    case OpName::reduce_scatter:
      return {.kind = Kind::ReduceScatter, .ofOutput = true, .inputBlocks = true};
    case OpName::reduce_scatter_v:
      return {.kind = Kind::ReduceScatterV, .ofOutput = true, .inputBlocks = true};
    case OpName::reduce_scatter_single:
    case OpName::reduce_scatter_quantized:
      return {Kind::ReduceScatter, true};
    case OpName::all_to_all_single:
      return {Kind::AllToAll};
    case OpName::all_to_all_v_single:
    case OpName::all_to_all:
      return {.kind = Kind::AllToAllV, .inputBlocks = true, .outputBlocks = true};
    case OpName::scatter:
      return {.kind = Kind::Scatter, .ofOutput = true, .inputBlocks = true};
    case OpName::gather:
      return {.kind = Kind::Gather, .outputBlocks = true};
    case OpName::gather_single:
      return {Kind::Gather};
    default:
      return {};
  }
}

}  // namespace

Collective collectiveOf(const Call& call, int ranks, const ctran::ReduceOp& op) {
  const Description description = descriptionOf(call.op);
  Collective c;
  c.kind = description.kind;
  if (c.kind == Kind::Barrier) return c;
  c.op = op;
  c.root = call.root;
  c.tag = call.tag;
  const at::Tensor& example = description.ofOutput ? call.outputs[0] : call.inputs[0];
  c.type = call.reduceOp ? reducedType(example, op.kind) : movedType(example);
  if (c.kind != Kind::AllToAllV) c.count = countOf(example);
  if (c.kind == Kind::AllToAll) c.count /= static_cast<size_t>(ranks);
  // Outputs first: to write a tensor may give it memory of its own, which is then read, too.
  if (!call.outputRows.empty()) {
    c.outputs = rowBlocks(writable(call.outputs[0]), call.outputs[0], call.outputRows);
    c.inputs =
        rowBlocks(const_cast<std::byte*>(readable(call.inputs[0])), call.inputs[0], call.inputRows);
    return c;
  }
  if (description.outputBlocks) {
    c.outputs = writableBlocks(call.outputs);
  } else if (!call.outputs.empty()) {
    c.output = writable(call.outputs[0]);
  }
  if (description.inputBlocks) {
    c.inputs = readableBlocks(call.inputs);
  } else if (!call.inputs.empty()) {
    c.input = readable(call.inputs[0]);
  }
  return c;
}

Collective collectiveOf(const P2POp& message) {
  const bool sends = message.type == P2POp::Type::SEND;
  Collective c = movement(sends ? Kind::Send : Kind::Recv, message.tensor, countOf(message.tensor));
  if (sends) {
    c.input = readable(message.tensor);
  } else {
    c.output = writable(message.tensor);
  }
  c.root = message.peer;
  c.tag = message.tag;
  return c;
}

}  // namespace torch::comms
