#include "ctran/collective/gpu/shares.h"

#include <algorithm>

#include "ctran/collective/gpu/context.h"

namespace ctran {
namespace {

constexpr size_t kGrainBytes = 16;

}  // namespace

Shares::Shares(const GpuHostsCall& call, size_t count, size_t element)
    : call_(call),
      count_(count),
      element_(element),
      piece_(call.stepBytes / kGrainBytes * kGrainBytes / element *
             static_cast<size_t>(call.domains.rails())) {
  pieces = ceilDiv(count, piece_);
}

size_t Shares::countOf(size_t k) const { return std::min(piece_, count_ - k * piece_); }

/// Returns the share in whole grains, so that all but the last share are aligned as the tensor is.
size_t Shares::shareOf(size_t k) const {
  const size_t grain = std::max<size_t>(1, kGrainBytes / element_);
  return ceilDiv(ceilDiv(countOf(k), static_cast<size_t>(call_.domains.rails())), grain) * grain;
}

std::vector<Block> Shares::blocks(size_t k, const std::byte* data) const {
  const size_t share = shareOf(k), all = countOf(k);
  std::vector<Block> blocks(call_.domains.local().size());
  for (size_t r = 0; r < static_cast<size_t>(call_.domains.rails()); ++r) {
    const size_t begin = std::min(all, r * share);
    blocks[r] = {const_cast<std::byte*>(data) + (k * piece_ + begin) * element_,
                 std::min(all - begin, share)};
  }
  return blocks;
}

Block Shares::own(size_t k, const std::byte* data) const {
  return blocks(k, data)[static_cast<size_t>(call_.domains.index())];
}

Collective Shares::onRail(const Collective& c, size_t k) const {
  Collective between;
  between.kind = c.kind;
  between.type = c.type;
  between.op = c.op;
  between.count = shareOf(k);
  between.onRail = true;
  return between;
}

Collective Shares::gather(size_t k, const Collective& c) const {
  Collective step;
  step.kind = CollectiveKind::AllGatherV;
  step.type = c.type;
  step.outputs = blocks(k, c.output);
  step.input = own(k, c.output).data;
  step.count = own(k, c.output).count;
  return step;
}

}  // namespace ctran
