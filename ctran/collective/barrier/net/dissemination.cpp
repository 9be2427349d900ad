#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// log2(size) steps, rounded up: in step k every rank tells the one 2^k after it, and hears of the
/// one 2^k before it, that they have come; after all steps it has heard of all.
Task barrierDissemination(NetContext& net, const Collective&) {
  std::byte token{1}, heard{};
  uint32_t step = 0;
  for (int distance = 1; distance < net.size; distance *= 2, ++step) {
    Arrival arrival = net.receive(net.before(distance), step, &heard, 1);
    Dispatch dispatch = net.send(net.after(distance), step, &token, 1);
    co_await dispatch;
    co_await arrival;
  }
}

double barrierDisseminationMicros(const AlgorithmQuery& q) {
  const double levels = levelsOf(q.size);
  return netMicros(q, {levels, levels});
}

}  // namespace

namespace algorithms {

Algorithm barrierNetDissemination() {
  return {.name = "dissemination",
          .kinds = {CollectiveKind::Barrier},
          .run = barrierDissemination,
          .micros = barrierDisseminationMicros};
}

}  // namespace algorithms

}  // namespace ctran
