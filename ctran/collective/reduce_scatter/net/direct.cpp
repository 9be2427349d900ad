#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// How a block is cut: into pieces of which one from every rank fits a few megabytes, but not into
/// more than a thousand. A function of the block and the size of the world, as both ends need it.
size_t blockPieceBytes(size_t blockBytes, int size, size_t element) {
  constexpr size_t kScratch = 4 << 20;
  const size_t piece = std::max({kScratch / size, size_t{64} << 10, blockBytes / 1024 + element});
  return std::max<size_t>(piece / element, 1) * element;
}

/// For reduce_scatter and reduce_scatter_v. One step: every rank sends each other rank that rank's
/// block, and reduces its own from what arrives and its own input, in rank order. Every rank sends
/// all blocks but its own, and receives size - 1 contributions: the least. It holds those of two
/// pieces at a time: while one is reduced the next arrives.
Task reduceScatterDirect(NetContext& net, const Collective& c) {
  const size_t element = sizeOf(c.type);
  const Block own = c.inputBlock(net.rank);
  const size_t bytes = own.count * element;
  const size_t piece = blockPieceBytes(bytes, net.size, element);
  const auto pieces = static_cast<uint32_t>((bytes + piece - 1) / piece);
  const auto length = [bytes, piece](uint32_t k) { return std::min(piece, bytes - k * piece); };

  const size_t room = std::min(piece, bytes);  // for one contribution
  std::byte* const scratch = net.scratch(2 * room * net.size);
  const auto contribution = [scratch, room, &net](uint32_t k, int peer) {
    return scratch + (k % 2 * net.size + peer) * room;
  };
  std::vector<Arrival> arrivals[2];
  const auto bind = [&](uint32_t k) {
    arrivals[k % 2].clear();
    for (int step = 1; k < pieces && step < net.size; ++step) {
      const int peer = net.before(step);
      arrivals[k % 2].push_back(net.receive(peer, k, contribution(k, peer), length(k)));
    }
  };
  bind(0);

  std::vector<Dispatch> dispatches;
  for (int step = 1; step < net.size; ++step) {
    const int peer = net.after(step);
    const Block block = c.inputBlock(peer);
    const size_t all = block.count * element, part = blockPieceBytes(all, net.size, element);
    uint32_t k = 0;
    for (size_t at = 0; at < all; at += part) {
      dispatches.push_back(net.send(peer, k++, block.data + at, std::min(part, all - at)));
    }
  }

  std::vector<const std::byte*> sources(net.size);
  for (uint32_t k = 0; k < pieces; ++k) {
    bind(k + 1);
    for (Arrival& arrival : arrivals[k % 2]) co_await arrival;
    for (int r = 0; r < net.size; ++r) sources[r] = contribution(k, r);
    sources[net.rank] = own.data + k * piece;
    reduceFn(c.op.kind, c.type)(c.output + k * piece, sources.data(), net.size, length(k) / element,
                                net.contributions());
  }
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

}  // namespace

namespace algorithms {

Algorithm reduceScatterNetDirect() {
  return {.name = "direct",
          .kinds = {CollectiveKind::ReduceScatter, CollectiveKind::ReduceScatterV},
          .run = reduceScatterDirect,
          .micros = straightMicros};
}

}  // namespace algorithms

}  // namespace ctran
