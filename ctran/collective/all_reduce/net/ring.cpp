#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// Reduce-scatter and all-gather around the ring, size - 1 steps each: in a step every rank sends
/// one of `size` parts to the next rank and gets another from the one before. In the first half it
/// adds its own contribution to what it got; then the finished parts go round. As many bytes as the
/// two-phase algorithm, over two connections per rank. Parts are numbered by places in the ring,
/// whose order keeps the ranks of a host together. The order of a reduction is that of the ring,
/// from the rank after the part's owner, so types that are to be rounded once are not for it.
Task allReduceRing(NetContext& net, const Collective& c) {
  const size_t element = sizeOf(c.type);
  const Partition parts(c.count, net.size, element);
  const auto at = [&c, &parts, element](int part) {
    return c.output + parts.begin(part) * element;
  };
  const auto bytes = [&parts, element](int part) { return parts.size(part) * element; };
  // Avg is a sum, divided where it is complete.
  const ReduceKind partial = c.op.kind == ReduceKind::Avg ? ReduceKind::Sum : c.op.kind;
  std::byte* const scratch = net.scratch((c.count / net.size + 2 * 64) * element);

  const int self = net.place(), next = net.at(self + 1), previous = net.at(self - 1);
  const auto before = [&net, self](int step) {
    return (self - step % net.size + net.size) % net.size;
  };
  for (int step = 0; step < net.size - 1; ++step) {
    const int sent = before(step + 1), got = before(step + 2);
    const auto buffer = static_cast<uint32_t>(step);
    Arrival arrival = net.receive(previous, buffer, scratch, bytes(got));
    const std::byte* own = c.input + parts.begin(sent) * element;
    Dispatch sending = net.send(next, buffer, step == 0 ? own : at(sent), bytes(sent));
    co_await arrival;
    const bool last = step == net.size - 2;
    const std::byte* sources[] = {scratch, c.input + parts.begin(got) * element};
    if (parts.size(got) > 0) {
      reduceFn(last ? c.op.kind : partial, c.type)(at(got), sources, 2, parts.size(got),
                                                   last ? net.contributions() : 0);
    }
    co_await sending;
  }
  std::vector<Arrival> arrivals;
  for (int step = 0; step < net.size - 1; ++step) {
    const int got = before(step + 1);
    arrivals.push_back(
        net.receive(previous, static_cast<uint32_t>(net.size + step), at(got), bytes(got)));
  }
  std::vector<Dispatch> dispatches;
  for (int step = 0; step < net.size - 1; ++step) {
    const int sent = before(step);
    dispatches.push_back(
        net.send(next, static_cast<uint32_t>(net.size + step), at(sent), bytes(sent)));
    co_await arrivals[step];
  }
  for (Dispatch& each : dispatches) co_await each;
}

double allReduceRingMicros(const AlgorithmQuery& q) {
  const double peers = q.size - 1, part = peers / q.size * static_cast<double>(q.bytes);
  return netMicros(q, {2 * peers, 2 * peers, 2 * part, part});
}

}  // namespace

namespace algorithms {

Algorithm allReduceNetRing() {
  return {.name = "ring",
          .kinds = {CollectiveKind::AllReduce},
          .run = allReduceRing,
          .micros = allReduceRingMicros,
          .sumsPartially = true};
}

}  // namespace algorithms

}  // namespace ctran
