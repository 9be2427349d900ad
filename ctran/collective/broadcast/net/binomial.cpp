#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// A rank passes a segment on while the next arrives; not more than some thousand of them.
size_t binomialSegmentBytes(size_t bytes) {
  constexpr size_t kSegment = 256 << 10;
  return std::max(kSegment, (bytes / 1024 + 63) / 64 * 64);
}

constexpr size_t kSegmentsAhead = 8;  // segments for which a rank is ready

/// A tree in which a rank is log2(size) hops from the root at most: counted from the root in the
/// order of places, rank v hears from v without its lowest bit, and tells v + 2^k for all smaller
/// bits. Large data goes in segments, so all levels are busy at once. Every byte leaves the root
/// log2(size) times.
Task broadcastBinomial(NetContext& net, const Collective& c) {
  const size_t bytes = c.blockBytes();
  const size_t segment = binomialSegmentBytes(bytes);
  const size_t segments = (bytes + segment - 1) / segment;
  const int root = net.placeOf(c.root);
  const int self = (net.place() - root + net.size) % net.size;
  const auto rankOf = [&net, root](int v) { return net.at(v + root); };
  int bit = 1;
  while (bit < net.size && (self & bit) == 0) bit *= 2;

  std::vector<Arrival> arrivals(self == 0 ? 0 : segments);
  std::vector<Dispatch> dispatches;
  const auto at = [&c, segment](size_t k) { return c.output + k * segment; };
  const auto length = [bytes, segment](size_t k) { return std::min(segment, bytes - k * segment); };
  const auto bind = [&](size_t k) {
    if (k >= arrivals.size()) return;
    arrivals[k] = net.receive(rankOf(self - bit), static_cast<uint32_t>(k), at(k), length(k));
  };
  for (size_t k = 0; k < kSegmentsAhead; ++k) bind(k);
  for (size_t k = 0; k < segments; ++k) {
    if (self != 0) co_await arrivals[k];
    bind(k + kSegmentsAhead);
    for (int child = bit / 2; child > 0; child /= 2) {
      if (self + child >= net.size) continue;
      dispatches.push_back(
          net.send(rankOf(self + child), static_cast<uint32_t>(k), at(k), length(k)));
    }
  }
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

double broadcastBinomialMicros(const AlgorithmQuery& q) {
  constexpr double kSegment = 256 << 10;  // of which ranks pass on one after another
  const double levels = levelsOf(q.size), bytes = static_cast<double>(q.bytes);
  return netMicros(q, {levels, levels * (1 + bytes / kSegment), levels * bytes});
}

}  // namespace

namespace algorithms {

Algorithm broadcastNetBinomial() {
  return {.name = "binomial",
          .kinds = {CollectiveKind::Broadcast},
          .run = broadcastBinomial,
          .micros = broadcastBinomialMicros};
}

}  // namespace algorithms

}  // namespace ctran
