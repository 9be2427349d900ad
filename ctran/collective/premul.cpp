#include "ctran/collective/premul.h"

#include "ctran/reduce/reduce.h"

namespace ctran {

std::vector<std::byte> applyPremul(Collective& c, int size) {
  const bool perRank =
      c.kind == CollectiveKind::ReduceScatter || c.kind == CollectiveKind::ReduceScatterV;
  const bool reduces =
      perRank || c.kind == CollectiveKind::AllReduce || c.kind == CollectiveKind::Reduce;
  if (!reduces || c.op.kind != ReduceKind::PremulSum) return {};

  const int blocks = perRank ? size : 1;
  size_t count = 0;
  for (int r = 0; r < blocks; ++r) count += c.inputBlock(r).count;
  std::vector<std::byte> product(count * sizeOf(c.type));

  std::byte* at = product.data();
  std::vector<Block> scaled;
  for (int r = 0; r < blocks; ++r) {
    const Block block = c.inputBlock(r);
    scale(at, block.data, block.count, c.type, c.op.factor);
    scaled.push_back({at, block.count});
    at += block.count * sizeOf(c.type);
  }
  c.input = product.data();
  if (!c.inputs.empty()) c.inputs = std::move(scaled);
  return product;
}

}  // namespace ctran
