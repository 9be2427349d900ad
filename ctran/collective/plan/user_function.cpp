#include "ctran/collective/plan/user_function.h"

namespace ctran {
namespace {

/// Whether the input and the output of a call have a block per rank.
bool takesBlocks(CollectiveKind kind) {
  return kind == CollectiveKind::ReduceScatter || kind == CollectiveKind::AllToAll;
}
bool givesBlocks(CollectiveKind kind) {
  return kind == CollectiveKind::AllGather || kind == CollectiveKind::AllToAll;
}

constexpr size_t kPlacedAlignment = 256;
size_t placedAligned(size_t bytes) {
  return (bytes + kPlacedAlignment - 1) / kPlacedAlignment * kPlacedAlignment;
}

}  // namespace

std::string whyNoFunction(CollectiveKind kind) {
  if (kind == CollectiveKind::AllReduce || kind == CollectiveKind::AllGather ||
      kind == CollectiveKind::ReduceScatter || kind == CollectiveKind::AllToAll ||
      kind == CollectiveKind::Broadcast) {
    return {};
  }
  return "functions serve no " + std::string(nameOf(kind));
}

FunctionBytes functionBytes(const Collective& c, int size) {
  const auto blocks = static_cast<size_t>(size);
  return {c.blockBytes() * (takesBlocks(c.kind) ? blocks : 1),
          c.blockBytes() * (givesBlocks(c.kind) ? blocks : 1)};
}

PlacedCall placed(const Collective& c, UserFunction::Places places, int rank, int size,
                  const std::function<std::byte*(size_t)>& staging) {
  const size_t block = c.blockBytes();
  PlacedCall call{c, functionBytes(c, size), {}, {}};
  call.collective.inputs.clear();
  call.collective.outputs.clear();
  const std::byte* input = c.kind == CollectiveKind::Broadcast ? c.output : c.input;
  std::byte* output = c.output;
  const size_t own = block * static_cast<size_t>(rank);  // of this rank's block, where they differ
  const size_t inOutput = c.kind == CollectiveKind::AllGather ? own : 0;
  const size_t inInput = c.kind == CollectiveKind::ReduceScatter ? own : 0;

  const bool isApart =
      !c.inputs.empty() || !c.outputs.empty() || input + inInput != output + inOutput;
  const bool joins = isApart && places == UserFunction::Places::InPlace;
  // What a reduce-scatter in place destroys is not the caller's input.
  const bool stagesInput = !c.inputs.empty() ||
                           (!isApart && places == UserFunction::Places::OutOfPlace) ||
                           (joins && c.kind == CollectiveKind::ReduceScatter);
  const bool stagesOutput = !c.outputs.empty();
  const size_t bytes = (stagesInput ? placedAligned(call.bytes.input) : 0) +
                       (stagesOutput ? placedAligned(call.bytes.output) : 0);
  std::byte* free = bytes > 0 ? staging(bytes) : nullptr;
  if (stagesInput) {
    const size_t blocks = takesBlocks(c.kind) ? static_cast<size_t>(size) : 1;
    for (size_t b = 0; b < blocks; ++b) {
      const std::byte* const from = c.inputs.empty() ? input + b * block : c.inputs[b].data;
      call.before.push_back({free + b * block, from, block});
    }
    input = free;
    free += placedAligned(call.bytes.input);
  }
  if (stagesOutput) {
    output = free;
    for (int r = 0; r < size; ++r) {
      call.after.push_back({c.outputs[r].data, output + static_cast<size_t>(r) * block, block});
    }
  }
  if (joins && c.kind == CollectiveKind::ReduceScatter) {
    std::byte* const in = const_cast<std::byte*>(input) + own;  // staged above
    call.after.push_back({output, in, block});
    output = in;
  } else if (joins) {
    call.before.push_back({output + inOutput, input, call.bytes.input});
    input = output + inOutput;
  }
  call.collective.input = input;
  call.collective.output = output;
  return call;
}

}  // namespace ctran
