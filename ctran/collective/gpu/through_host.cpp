#include <array>

#include "ctran/collective/gpu/hosts_call.h"

namespace ctran {
namespace {

using Kind = CollectiveKind;

constexpr size_t kStagingAlignment = 64;

size_t stagingAligned(size_t bytes) {
  return (bytes + kStagingAlignment - 1) / kStagingAlignment * kStagingAlignment;
}

/// The blocks of one side of a collective: its list, or what lies in one piece.
std::vector<Block> blocksOf(const std::vector<Block>& listed, std::byte* data, size_t count) {
  return listed.empty() ? std::vector<Block>{{data, count}} : listed;
}

/// What a rank gives.
std::vector<Block> inputsOf(const Collective& c, int rank, size_t size) {
  auto* const input = const_cast<std::byte*>(c.input);
  switch (c.kind) {
    case Kind::Broadcast:
      return c.root == rank ? std::vector<Block>{{c.output, c.count}} : std::vector<Block>{};
    case Kind::AllReduce:
    case Kind::Reduce:
    case Kind::AllGather:
    case Kind::AllGatherV:
    case Kind::Gather:
    case Kind::Send:
      return {{input, c.count}};
    case Kind::Scatter:
      if (c.root != rank) return {};
      [[fallthrough]];
    case Kind::ReduceScatter:
    case Kind::ReduceScatterV:
    case Kind::AllToAll:
    case Kind::AllToAllV:
      return blocksOf(c.inputs, input, c.count * size);
    default:
      return {};
  }
}

/// What it gets.
std::vector<Block> outputsOf(const Collective& c, int rank, size_t size) {
  switch (c.kind) {
    case Kind::Reduce:
      if (c.root != rank) return {};
      [[fallthrough]];
    case Kind::Broadcast:
    case Kind::AllReduce:
    case Kind::ReduceScatter:
    case Kind::ReduceScatterV:
    case Kind::Scatter:
    case Kind::Recv:
      return {{c.output, c.count}};
    case Kind::Gather:
      if (c.root != rank) return {};
      [[fallthrough]];
    case Kind::AllGather:
    case Kind::AllGatherV:
    case Kind::AllToAll:
    case Kind::AllToAllV:
      return blocksOf(c.outputs, c.output, c.count * size);
    default:
      return {};
  }
}

/// A collective in memory of the host, which stands for one in memory of the GPU.
struct Twin {
  Collective host;
  std::vector<Block> inputs, outputs;  ///< on the GPU
  std::vector<Staging> stagedInputs, stagedOutputs;
};

std::vector<Staging> place(const std::vector<Block>& blocks, size_t element, Staging& at) {
  std::vector<Staging> places;
  // One behind the other: blocks in one piece stay so.
  for (const Block& block : blocks) {
    places.push_back(at);
    at = at + block.count * element;
  }
  return places;
}

size_t stagedBytes(const std::vector<Block>& blocks, size_t element) {
  size_t count = 0;
  for (const Block& block : blocks) count += block.count;
  return stagingAligned(count * element);
}

/// Lets the twin's lists and pointers name the host's memory.
void point(Twin& twin) {
  Collective& c = twin.host;
  const auto pointAt = [](std::vector<Block>& listed, const std::vector<Staging>& places) {
    for (size_t i = 0; i < listed.size() && i < places.size(); ++i) {
      listed[i].data = places[i].host;
    }
  };
  pointAt(c.inputs, twin.stagedInputs);
  pointAt(c.outputs, twin.stagedOutputs);
  if (!twin.stagedInputs.empty()) c.input = twin.stagedInputs[0].host;
  if (!twin.stagedOutputs.empty()) c.output = twin.stagedOutputs[0].host;
  // A root's buffer of a broadcast is its input.
  if (c.kind == Kind::Broadcast && !twin.stagedInputs.empty()) c.output = twin.stagedInputs[0].host;
}

}  // namespace

void passThroughHost(GpuHostsCall& call, const std::vector<Collective>& collectives) {
  const auto size = static_cast<size_t>(call.domains.size());
  std::vector<Twin> twins;
  size_t bytes = 0;
  for (const Collective& c : collectives) {
    Twin twin{c, inputsOf(c, call.rank, size), outputsOf(c, call.rank, size), {}, {}};
    if (c.kind == Kind::Broadcast && c.root == call.rank) twin.outputs.clear();
    const size_t element = sizeOf(c.type);
    bytes +=
        stagedBytes(twin.inputs, element) + stagedBytes(twin.outputs, element) + kStagingAlignment;
    twins.push_back(std::move(twin));
  }
  const Staging memory = call.stage(bytes);
  Staging at = memory;
  const auto align = [&] {
    at = memory + stagingAligned(static_cast<size_t>(at.host - memory.host));
  };
  std::vector<Collective> between;
  for (Twin& twin : twins) {
    const size_t element = sizeOf(twin.host.type);
    twin.stagedInputs = place(twin.inputs, element, at);
    align();
    twin.stagedOutputs = place(twin.outputs, element, at);
    align();
    for (size_t i = 0; i < twin.inputs.size(); ++i) {
      call.copy(twin.stagedInputs[i].device, twin.inputs[i].data, twin.inputs[i].count * element);
    }
    if (twin.host.op.factorAt != nullptr) {
      call.copy(at.device, reinterpret_cast<const std::byte*>(twin.host.op.factorAt),
                sizeof(double));
      twin.host.op.factorAt = reinterpret_cast<const double*>(at.host);
    }
    at = at + kStagingAlignment;
    point(twin);
    between.push_back(twin.host);
  }
  call.await(call.start(std::move(between)));
  for (const Twin& twin : twins) {
    const size_t element = sizeOf(twin.host.type);
    for (size_t i = 0; i < twin.outputs.size(); ++i) {
      call.copy(twin.outputs[i].data, twin.stagedOutputs[i].device,
                twin.outputs[i].count * element);
    }
  }
}

}  // namespace ctran
