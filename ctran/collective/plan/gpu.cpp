#include "ctran/collective/plan/gpu.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/collective/gpu/kernels.h"
#include "ctran/gpu/driver.h"
#include "ctran/gpu/runtime.h"
#include "ctran/plan/trim.h"

namespace ctran {
namespace {

using gpu::addressOf;
using gpu::check;
using gpu::copyAsync;
using gpu::DevicePtr;
using plan::Buffer;
using plan::Plan;

const ConfigInt kPlanBytes{
    "CTRAN_GPU_PLAN_BYTES", 32 << 20,
    "The scratch on each GPU that a plan gets, about, when it first serves a call of a "
    "communicator. The same on all ranks.",
    1 << 16, 1 << 30};

constexpr uint32_t kThreads = 512;
constexpr uint32_t kFewThreads = 128;  // with which a block begins quickly
constexpr size_t kPacketBytes = 8;     // of data
/// The most bytes of a chunk of scratch, in a slice.
constexpr size_t kMostUnit = 64 << 10;
constexpr size_t kGoodUnit = 16 << 10;
constexpr size_t kLeastUnit = 512;
constexpr size_t kScratchAlignment = 256;

size_t scratchAligned(size_t bytes) {
  return ceilDiv(bytes, kScratchAlignment) * kScratchAlignment;
}

size_t mostLanes(const Plan& plan) {
  size_t most = 1;
  for (const auto& lanes : plan.programs) most = std::max(most, lanes.size());
  return most;
}

size_t mostSignals(const Plan& plan) {
  std::vector<size_t> ending(plan.ranks, 0);
  for (const plan::Channel& channel : plan.channels) ++ending[channel.to.rank];
  return *std::max_element(ending.begin(), ending.end());
}

}  // namespace

DevicePtr StagingMemory::of(size_t bytes) {
  if (pieces_.empty() || pieces_.back().size() < bytes) {
    const size_t twice = pieces_.empty() ? 0 : 2 * pieces_.back().size();
    pieces_.push_back(gpu::DeviceMemory::allocate(device_, std::max(bytes, twice)));
  }
  return pieces_.back().address();
}

std::string GpuPlan::whyNot(const PlanAlgorithm& algorithm, const Collective& c, uint32_t blocks) {
  const size_t lanes = mostLanes(algorithm.plan());
  if (lanes > blocks) {
    return "it has " + std::to_string(lanes) + " lanes, and kernels have " +
           std::to_string(blocks) + " blocks at most";
  }
  if (isReduction(c.kind) && c.op.kind == ReduceKind::PremulSum) {
    return "plans have no place to scale contributions";
  }
  return {};
}

GpuPlan::GpuPlan(std::shared_ptr<const PlanAlgorithm> algorithm, int root, const device::Team& team,
                 int device, uint32_t blocks)
    : algorithm_(std::move(algorithm)),
      plan_(plan::withoutIdleCredits(
          plan::withLargestChunks(plan::withRoot(algorithm_->plan(), root)))),
      directPlan_(algorithm_->direct()
                      ? plan::withLargestChunks(plan::withRoot(*algorithm_->direct(), root))
                      : Plan()),
      source_(kernelOf(plan_, plan::verify(plan_).properties, static_cast<int>(team.rank), "made",
                       algorithm_->direct() ? &directPlan_ : nullptr)),
      team_(team),
      device_(device),
      others_(team.size) {
  const size_t lanes = mostLanes(plan_);
  const size_t chunks = std::max<size_t>(1, size_t(plan_.scratch) * plan_.depth);
  const auto budget = static_cast<size_t>(kPlanBytes.get());
  // Many slices, but not so many that only crumbs of scratch are left for each.
  const size_t wanted = blocks / lanes;
  const size_t good = budget / (chunks * kGoodUnit);
  slices_ = static_cast<uint32_t>(std::max<size_t>(1, std::min(wanted, good)));
  const auto take = [&](size_t bytes) {
    return std::exchange(bytes_, bytes_ + scratchAligned(bytes));
  };
  // The same on all ranks.
  const auto place = [&](Form& form, const Plan& plan) {
    form.signals = take(mostSignals(plan) * slices_ * sizeof(uint32_t));
    form.executions = take(lanes * slices_ * sizeof(uint64_t));
  };
  place(staged_, plan_);
  if (algorithm_->direct()) {
    place(direct_, directPlan_);
    mail_ = take(lanes * slices_ * 4 * device::kMaxRanks * sizeof(device::Word16));
    launches_ = take(lanes * slices_ * sizeof(uint64_t));
  }
  const auto addScratch = [&](Form& form, const Plan& plan) {
    const size_t needed = size_t(plan.scratch) * plan.depth;
    const size_t unit = budget / (std::max<size_t>(1, needed) * slices_) / kLeastUnit * kLeastUnit;
    form.unitBytes = std::clamp(unit, kLeastUnit, kMostUnit);
    form.scratch = take(needed * slices_ * form.unitBytes);
  };
  addScratch(staged_, plan_);
  if (algorithm_->direct()) addScratch(direct_, directPlan_);
}

UniqueFd GpuPlan::allocate() {
  own_ = gpu::DeviceMemory::allocate(device_, bytes_);
  // On a stream of its own: the default one must not be used while another captures.
  const gpu::Runtime& runtime = gpu::Runtime::of(gpu::Platform::Cuda);
  const gpu::RelaxedCapture relaxed(runtime);
  const gpu::OwnStream stream(runtime, device_, false);
  // Packets in scratch have to be none at first, too.
  check(gpu::Driver::get().memsetD32Async(own_.address(), 0, bytes_ / 4, stream.get()),
        "cuMemsetD32Async");
  check(gpu::Driver::get().streamSynchronize(stream.get()), "cuStreamSynchronize");
  return UniqueFd(own_.exportHandle());
}

void GpuPlan::connect(const HostGroup& group) {
  for (uint32_t r = 0; r < team_.size; ++r) {
    if (r == team_.rank) continue;
    others_[r] = gpu::DeviceMemory::import(group.brought[r].get(), own_.size(), device_);
  }
}

GpuPlan::Specialization GpuPlan::specializationFor(const Collective& c, const void* input,
                                                   const void* output) const {
  if (isReduction(c.kind)) {
    const DeviceReduction reduction = deviceReduction(c.type, c.op.kind);
    return {reduction.element, reduction.op, reduction.elementBytes};
  }
  // What is only moved is words, or bytes: parts and units begin at the same places either way.
  const bool words = (addressOf(input) | addressOf(output) | c.blockBytes()) % 4 == 0;
  return {words ? "u32" : "u8", "Sum", words ? size_t{4} : size_t{1}};
}

gpu::Function GpuPlan::kernel(const Specialization& s) {
  gpu::Function& known = kernels_[{s.element, s.op}];
  if (known == nullptr) {
    known = loadKernel(device_,
                       {"plan-" + std::to_string(plan_.hash()),
                        source_.source,
                        gpu::architecture(device_),
                        {"CTRAN_ELEMENT=" + s.element, "CTRAN_OP=" + s.op}},
                       source_.entry);
  }
  return known;
}

void GpuPlan::prepare(const Collective& c) { kernel(specializationFor(c, nullptr, nullptr)); }

/// One piece of memory each, in the relation that the plan is written for.
struct GpuPlan::Buffers {
  DevicePtr input = 0;
  DevicePtr output = 0;
  bool stagesOutput = false;  ///< blocks are to be copied to where the caller wants them
};

GpuPlan::Buffers GpuPlan::placed(const Collective& c, StagingMemory& staging,
                                 gpu::Stream stream) const {
  if (c.kind == CollectiveKind::Broadcast) return {addressOf(c.output), addressOf(c.output), false};
  const size_t bytes = c.blockBytes();
  const auto inputs = static_cast<size_t>(plan_.blocks(Buffer::Input));
  const auto outputs = static_cast<size_t>(plan_.blocks(Buffer::Output));
  const auto inputAt = [&](size_t b) { return addressOf(c.inputBlock(static_cast<int>(b)).data); };
  const auto outputAt = [&](size_t b) {
    return outputs == 1 ? addressOf(c.output) : addressOf(c.outputBlock(static_cast<int>(b)).data);
  };
  Buffers made{inputs == 1 ? addressOf(c.input) : inputAt(0), outputAt(0), false};
  for (size_t b = 0; b < outputs; ++b) made.stagesOutput |= outputAt(b) != made.output + b * bytes;

  // Of the input block that is an output block, too, in a call in place.
  const auto ownPlace = [&](size_t b, const auto& at) -> DevicePtr {
    if (c.kind == CollectiveKind::AllGather) return at(team_.rank);
    if (c.kind == CollectiveKind::ReduceScatter) return b == team_.rank ? at(0) : 0;
    return at(b);
  };
  bool stagesInput = false, inPlace = false;
  for (size_t b = 0; b < inputs; ++b) {
    const DevicePtr from = inputs == 1 ? made.input : inputAt(b);
    stagesInput |= from != made.input + b * bytes;
    inPlace |= from == ownPlace(b, outputAt);
  }
  stagesInput |= inPlace && !made.stagesOutput && !algorithm_->properties().inPlaceSafe;
  stagesInput &= !plan_.inPlace;
  const size_t room = scratchAligned(inputs * bytes);
  if (!stagesInput && !made.stagesOutput && !plan_.inPlace) return made;
  const DevicePtr spare = stagesInput || made.stagesOutput
                              ? staging.of(room + (made.stagesOutput ? outputs * bytes : 0))
                              : 0;
  if (made.stagesOutput) made.output = spare + room;
  const auto sourceOf = [&](size_t b) { return inputs == 1 ? addressOf(c.input) : inputAt(b); };
  if (plan_.inPlace) {
    const auto into = [&](size_t b) { return made.output + b * bytes; };
    for (size_t b = 0; b < inputs; ++b) copyAsync(ownPlace(b, into), sourceOf(b), bytes, stream);
    made.input = made.output;
  } else if (stagesInput) {
    for (size_t b = 0; b < inputs; ++b) copyAsync(spare + b * bytes, sourceOf(b), bytes, stream);
    made.input = spare;
  }
  return made;
}

DevicePtr GpuPlan::memoryOf(uint32_t rank) const {
  return rank == team_.rank ? own_.address() : others_[rank].address();
}

device::PlanTeam GpuPlan::teamOf(const Form& form) const {
  device::PlanTeam plan{};
  plan.team = team_;
  plan.unitBytes = form.unitBytes;
  plan.slices = slices_;
  for (uint32_t r = 0; r < team_.size; ++r) {
    plan.signals[r] = reinterpret_cast<uint32_t*>(memoryOf(r) + form.signals);
    plan.team.scratch[r] = reinterpret_cast<char*>(memoryOf(r) + form.scratch);
  }
  plan.executions = reinterpret_cast<device::u64*>(own_.address() + form.executions);
  return plan;
}

/// How many slices, the same on all ranks, and threads of each block: as many as the call asks for,
/// else enough for a thread not to have much to do, as starting more takes longer.
std::pair<uint32_t, uint32_t> GpuPlan::gridFor(const Collective& c, const GpuTarget& target) const {
  const size_t part = ceilDiv(c.blockBytes(), static_cast<size_t>(plan_.chunks));
  const size_t each = source_.packets ? kPacketBytes : sizeof(device::Word16);
  const size_t enough = ceilDiv(part, each * kFewThreads);
  const size_t slices = target.blocks != 0 ? slices_ : std::clamp<size_t>(enough, 1, slices_);
  const size_t threads =
      target.threads != 0 ? std::max(kWarp, std::min(target.threads, kThreads) / kWarp * kWarp)
                          : std::clamp<size_t>(ceilDiv(ceilDiv(part, slices), each * kWarp) * kWarp,
                                               kFewThreads, kThreads);
  return {static_cast<uint32_t>(slices), static_cast<uint32_t>(threads)};
}

void GpuPlan::launch(const Collective& c, StagingMemory& staging, const GpuContext& context,
                     const GpuTarget& target) {
  if (c.count == 0) return;
  const gpu::Stream stream = target.stream;
  const Buffers buffers = placed(c, staging, stream);
  device::PlanArguments a{};
  a.input = reinterpret_cast<const void*>(buffers.input);
  a.output = reinterpret_cast<void*>(buffers.output);
  const Specialization specialization = specializationFor(c, a.input, a.output);
  a.count = c.blockBytes() / specialization.elementBytes;
  a.plan = teamOf(staged_);
  if (algorithm_->direct()) {
    a.direct = teamOf(direct_);
    const auto offer = [&](const void* address, Buffer buffer) {
      const size_t bytes = static_cast<size_t>(plan_.blocks(buffer)) * c.blockBytes();
      return device::placed(context.placeOf(address, bytes, stream));
    };
    a.offers[0] = offer(a.input, Buffer::Input);
    a.offers[1] = offer(a.output, Buffer::Output);
    for (uint32_t r = 0; r < team_.size; ++r) {
      a.mail[r] = reinterpret_cast<device::Word16*>(memoryOf(r) + mail_);
    }
    a.launches = reinterpret_cast<device::u64*>(own_.address() + launches_);
  }
  const auto [slices, threads] = gridFor(c, target);
  void* parameters[] = {&a};
  if (source_.lanes > 0) {
    check(gpu::Driver::get().launchKernel(kernel(specialization), source_.lanes * slices, 1, 1,
                                          threads, 1, 1, 0, stream, parameters, nullptr),
          "launching a plan");
  }
  if (!buffers.stagesOutput) return;
  const size_t bytes = c.blockBytes();
  for (int b = 0; b < plan_.blocks(Buffer::Output); ++b) {
    copyAsync(addressOf(c.outputBlock(b).data), buffers.output + b * bytes, bytes, stream);
  }
}

}  // namespace ctran
