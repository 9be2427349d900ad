#include "ctran/collective/exchange/persistent_copy.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "ctran/base/checked.h"
#include "ctran/base/error.h"
#include "ctran/collective/exchange/copy_signals.cuh"
#include "ctran/gpu/driver.h"

namespace ctran {
namespace {

using gpu::addressOf;
using gpu::check;
using gpu::copyAsync;

constexpr uint32_t kWordBits = 64;
static_assert(device::kBarriers % kWordBits == 0);

uint64_t bitOf(uint32_t barrier) { return uint64_t{1} << barrier % kWordBits; }

/// A barrier that no rank holds; kBarriers if there is none.
uint32_t freeBarrier(const std::vector<PersistentCopies::Offer>& all) {
  for (uint32_t word = 0; word < all[0].held.size(); ++word) {
    uint64_t held = 0;
    for (const auto& one : all) held |= one.held[word];
    if (~held != 0) return word * kWordBits + static_cast<uint32_t>(std::countr_one(held));
  }
  return device::kBarriers;
}

}  // namespace

void PersistentCopy::free() const {
  callable->fetch_and(~bitOf(barrier), std::memory_order_release);
}

PersistentCopy::~PersistentCopy() {
  free();
  held->fetch_and(~bitOf(barrier), std::memory_order_release);
}

PersistentCopies::PersistentCopies(const PeerMemory& memory, SymmetricMemory& symmetric, int device)
    : memory_(memory),
      symmetric_(symmetric),
      team_(memory.team()),
      kernels_(MovingKernels::of(device, static_cast<int>(team_.size))),
      branch_(0, 2, device),
      held_(std::make_shared<std::array<std::atomic<uint64_t>, device::kBarriers / 64>>()) {}

std::shared_ptr<PersistentCopy> PersistentCopies::prepare(CollectiveKind kind, std::byte* output,
                                                          size_t bytes, bool wanted,
                                                          std::chrono::nanoseconds limit,
                                                          const Exchange& exchange) {
  // Held from before it is offered: a place names a segment that exists.
  auto segment = wanted && bytes != 0 ? DeviceSegment::find(output, bytes) : nullptr;
  Offer own{kind, bytes, segment ? symmetric_.await(output, bytes, limit) : device::Place{}, {}};
  for (size_t word = 0; word < own.held.size(); ++word) {
    own.held[word] = (*held_)[word].load(std::memory_order_acquire);
  }
  const auto agreed = [&](const std::vector<Offer>& all) {
    return std::all_of(all.begin(), all.end(), [&](const Offer& one) {
      return one.kind == kind && one.bytes == bytes && one.place.segment != 0;
    });
  };
  const std::vector<Offer> all = exchange(own);
  if (!agreed(all) || freeBarrier(all) == device::kBarriers) return nullptr;
  auto made = build(all, output, std::move(segment));
  // Calls may follow when all have got here.
  if (!made) own.place = {};
  return agreed(exchange(own)) ? made : nullptr;
}

/// Null if one of the outputs has been freed meanwhile.
std::shared_ptr<PersistentCopy> PersistentCopies::build(
    const std::vector<Offer>& all, std::byte* output,
    std::shared_ptr<DeviceSegment> segment) const {
  const uint32_t barrier = freeBarrier(all), word = barrier / kWordBits;
  const Offer& own = all[team_.rank];
  auto& callable = memory_.controlBlock(static_cast<int>(team_.rank)).barriers[word];
  // The control blocks stay mapped.
  std::shared_ptr<PersistentCopy> made(new PersistentCopy{own.kind,
                                                          own.bytes,
                                                          barrier,
                                                          {},
                                                          std::move(segment),
                                                          {},
                                                          {held_, &(*held_)[word]},
                                                          {memory_.controlBlocks(), &callable}});
  made->held->fetch_or(bitOf(barrier), std::memory_order_release);
  callable.fetch_or(bitOf(barrier), std::memory_order_release);
  made->outputs[team_.rank] = output;
  for (uint32_t r = 0; r < team_.size; ++r) {
    if (r == team_.rank) continue;
    const device::Place& place = all[r].place;
    Checked(place.segment).atMost(device::kSegments, static_cast<int>(r), "as a segment");
    made->others[r] = symmetric_.mappingOf(static_cast<int>(r), place.segment);
    if (!made->others[r]) return nullptr;
    if (!isInside(place.offset, own.bytes, made->others[r]->size())) {
      throw Error(ErrorKind::Mismatch,
                  "rank " + std::to_string(r) + " offers an output that reaches beyond its memory",
                  {static_cast<int>(r)});
    }
    made->outputs[r] = reinterpret_cast<std::byte*>(made->others[r]->address() + place.offset);
  }
  return made;
}

void PersistentCopies::validate(const Collective& c, uint64_t number) const {
  const PersistentCopy& p = *c.persistent;
  if (c.kind != p.kind || c.output != p.outputs[team_.rank] ||
      c.blockBytes() * team_.size != p.bytes) {
    throw Error(ErrorKind::InvalidArgument,
                "the output is not where, or not what, it was when this was prepared", {}, {},
                "prepare it anew on all ranks");
  }
  for (uint32_t r = 0; r < team_.size; ++r) {
    const GpuControlBlock& block = memory_.controlBlock(static_cast<int>(r));
    const auto& callable = block.barriers[p.barrier / kWordBits];
    if (callable.load(std::memory_order_acquire) & bitOf(p.barrier)) continue;
    if (block.issued.load(std::memory_order_acquire) >= number) continue;  // freed after this call
    throw Error(ErrorKind::InvalidArgument,
                "rank " + std::to_string(r) + " has freed what was prepared", {static_cast<int>(r)},
                {}, "free it on all ranks, after the last call");
  }
}

void PersistentCopies::meet(uint32_t barrier, gpu::Stream stream) const {
  device::MeetArguments a{team_, barrier};
  void* parameters[] = {&a};
  check(gpu::Driver::get().launchKernel(kernels_.meet, 1, 1, 1, 32, 1, 1, 0, stream, parameters,
                                        nullptr),
        "launching a kernel");
}

void PersistentCopies::launch(const Collective& c, StagingMemory& staging, gpu::Stream stream) {
  const PersistentCopy& p = *c.persistent;
  const size_t bytes = c.blockBytes();
  const uint32_t rank = team_.rank;
  const std::byte* input = c.input;
  if (c.kind == CollectiveKind::AllToAll && input < c.output + p.bytes &&
      c.output < input + p.bytes) {
    // The others may write as soon as they have met this rank, which has not sent by then.
    const gpu::DevicePtr aside = staging.of(p.bytes);
    copyAsync(aside, addressOf(input), p.bytes, stream);
    input = reinterpret_cast<const std::byte*>(aside);
  }
  const auto blockFor = [&](uint32_t r) {
    return addressOf(c.kind == CollectiveKind::AllGather ? input : input + r * bytes);
  };
  const auto placeAt = [&](uint32_t r) { return addressOf(p.outputs[r] + rank * bytes); };
  meet(p.barrier, stream);
  branch_.fork(stream);
  // Its own first: where that has to share an engine, the others have the links meanwhile.
  copyAsync(placeAt(rank), blockFor(rank), bytes, stream);
  for (uint32_t step = 1; step < team_.size; ++step) {
    const uint32_t r = (rank + step) % team_.size;
    copyAsync(placeAt(r), blockFor(r), bytes, branch_.of(1));
  }
  branch_.join(stream);
  meet(p.barrier, stream);
  ++launched_;
}

}  // namespace ctran
