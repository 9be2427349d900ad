#include "ctran/collective/plan/memory.h"

#include "ctran/collective/plan/algorithm.h"

namespace ctran {

using plan::Buffer;

PlanLayout::PlanLayout(const plan::Plan& plan, size_t count, size_t element)
    : parts_(count, plan.chunks, element),
      element_(element),
      slots_(std::max<size_t>(1, static_cast<size_t>(plan.scratch) * plan.depth)) {
  size_t largest = 0;
  for (int k = 0; k < plan.chunks; ++k) largest = std::max(largest, parts_.size(k));
  // Two units or more, so that lanes and ranks overlap, but of 16 KB at least in all chunks of a
  // copy of scratch, and 8 KB in one. Beyond 128 KB about eight.
  const size_t bytes = std::max<size_t>(largest * element, 64);
  const size_t chunks = std::max(1, plan.scratch);
  const size_t least = std::max<size_t>(8192, 16384 / chunks);
  const size_t most = std::max({131072 / chunks, bytes / 8, least});
  const size_t wanted = std::min(bytes, std::clamp(bytes / 2, least, most));
  stride_ = std::min(PlanMemory::kScratchBytes / slots_ / 64 * 64, (wanted + 63) / 64 * 64);
  unit_ = std::max<size_t>(1, stride_ / element);
  units_ = (largest + unit_ - 1) / unit_;
}

PlanLayout::PlanLayout(const Collective& c) : PlanLayout(c.plan->plan(), c.count, sizeOf(c.type)) {}

PlanMemory::PlanMemory(const Collective& c, const PlanLayout& layout, int rank,
                       std::vector<std::byte*> scratch)
    : c_(c),
      plan_(c.plan->plan()),
      rank_(rank),
      scratch_(std::move(scratch)),
      element_(sizeOf(c.type)),
      layout_(layout) {
  placeInput();
}

std::byte* PlanMemory::at(const plan::Step& step, const plan::Place& place, int offset,
                          uint64_t unit) const {
  const int index = place.index + offset;
  if (place.buffer == Buffer::Scratch) {
    const size_t slot = unit % plan_.depth * plan_.scratch + index;
    return scratch_[real(place.rank)] + slot * layout_.stride();
  }
  const int block = index / plan_.chunks;
  std::byte* data = place.buffer == Buffer::Input ? inputBlock(block) : outputBlock(block);
  return data + layout_.offsetBytes(part(step, offset), unit);
}

std::byte* PlanMemory::inputBlock(int block) const {
  if (!copy_.empty()) return const_cast<std::byte*>(copy_.data()) + block * c_.blockBytes();
  return c_.inputBlock(block).data;
}

/// The block of the output that is an input block's place in a call in place.
std::byte* PlanMemory::ownPlace(int block) const {
  if (plan_.kind == CollectiveKind::AllGather) return outputBlock(rank_);
  if (plan_.kind == CollectiveKind::ReduceScatter) return block == rank_ ? c_.output : nullptr;
  return outputBlock(block);
}

/// Brings input and output into the relation that the plan is written for. That concerns nobody
/// but this rank.
void PlanMemory::placeInput() {
  if (plan_.kind == CollectiveKind::Broadcast) return;
  const int blocks = plan_.blocks(Buffer::Input);
  bool inPlace = false;
  for (int b = 0; b < blocks; ++b) {
    if (plan_.inPlace) {
      copyBlock(ownPlace(b), c_.inputBlock(b).data, c_.blockBytes());
    } else {
      inPlace |= c_.count > 0 && ownPlace(b) == c_.inputBlock(b).data;
    }
  }
  if (!inPlace || c_.plan->properties().inPlaceSafe) return;
  copy_.resize(blocks * c_.blockBytes());
  for (int b = 0; b < blocks; ++b) {
    copyBlock(copy_.data() + b * c_.blockBytes(), c_.inputBlock(b).data, c_.blockBytes());
  }
}

}  // namespace ctran
