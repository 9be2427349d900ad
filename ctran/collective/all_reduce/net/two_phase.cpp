#include "ctran/collective/all_reduce/net/two_phase.h"

#include "ctran/collective/algorithm.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/net_cost.h"

namespace ctran {
namespace {

/// A piece of the tensor and its parts, one per rank; what is on its way for it.
struct InFlight {
  std::vector<Arrival> contributions, results;
  std::vector<Dispatch> inputs, reduced;  // inputs: per rank
};

/// Pieces of some megabytes, but not more than a thousand.
size_t twoPhasePieceBytes(size_t bytes, size_t element) {
  constexpr size_t kPiece = 4 << 20;
  return std::max(kPiece, bytes / 1000) / element * element;
}

}  // namespace

/// Reduce-scatter, then all-gather (or gather at the root), both direct: every rank is sent its
/// part by all others, reduces it in rank order, and sends the result to those who get it. Per rank
/// 2 (size - 1) / size times the data is sent and received, the least, in two steps. A tensor goes
/// in pieces: while one is reduced and collected the contributions to the next arrive.
Task reduceInTwoPhases(NetContext& net, const Collective& c, int root) {
  const size_t element = sizeOf(c.type);
  const size_t piece = twoPhasePieceBytes(c.blockBytes(), element);
  const auto pieces = static_cast<uint32_t>((c.blockBytes() + piece - 1) / piece);
  const bool collects = root < 0 || root == net.rank;
  const bool inPlace = collects && c.input == c.output;
  const auto partsOf = [&c, &net, piece, element](uint32_t k) {
    const size_t bytes = std::min(piece, c.blockBytes() - k * piece);
    return Partition(bytes / element, net.size, element);
  };
  // Room for the contributions to this rank's part, of two pieces; and for its result where it has
  // no output.
  const size_t room = (std::min(piece, c.blockBytes()) / element / net.size + 2 * 64) * element;
  std::byte* const scratch = net.scratch(2 * (net.size + 1) * room);
  const auto contribution = [scratch, room, &net](uint32_t k, int rank) {
    return scratch + (k % 2 * (net.size + 1) + rank) * room;
  };
  InFlight flights[2];

  const auto start = [&](uint32_t k) {
    const Partition parts = partsOf(k);
    InFlight& flight = flights[k % 2];
    flight.contributions.clear();
    flight.inputs.clear();
    flight.inputs.resize(net.size);
    for (int step = 1; step < net.size; ++step) {
      const int peer = net.before(step);
      flight.contributions.push_back(
          net.receive(peer, 2 * k, contribution(k, peer), parts.size(net.rank) * element));
    }
    for (int step = 1; step < net.size; ++step) {
      const int peer = net.after(step);
      flight.inputs[peer] = net.send(peer, 2 * k, c.input + k * piece + parts.begin(peer) * element,
                                     parts.size(peer) * element);
    }
  };

  if (pieces > 0) start(0);
  std::vector<const std::byte*> sources(net.size);
  for (uint32_t k = 0; k < pieces; ++k) {
    InFlight& flight = flights[k % 2];
    const Partition parts = partsOf(k);
    const size_t mine = k * piece + parts.begin(net.rank) * element;
    const size_t bytes = parts.size(net.rank) * element;

    for (Arrival& arrival : flight.contributions) co_await arrival;
    for (Dispatch& dispatch : flight.reduced) co_await dispatch;  // of two pieces ago
    for (int r = 0; r < net.size; ++r) sources[r] = contribution(k, r);
    sources[net.rank] = c.input + mine;
    std::byte* const result = collects ? c.output + mine : contribution(k, net.size);
    if (bytes > 0) {
      reduceFn(c.op.kind, c.type)(result, sources.data(), net.size, parts.size(net.rank),
                                  net.contributions());
    }

    flight.reduced.clear();
    for (int step = 1; step < net.size; ++step) {
      const int peer = net.after(step);
      if (root < 0 || root == peer) {
        flight.reduced.push_back(net.send(peer, 2 * k + 1, result, bytes));
      }
    }
    // The contributions' memory is free again after the next piece but one has been bound to it, so
    // that one starts only now.
    if (k + 1 < pieces) {
      for (Arrival& arrival : flights[(k + 1) % 2].results) co_await arrival;
      for (Dispatch& dispatch : flights[(k + 1) % 2].inputs) co_await dispatch;
      flights[(k + 1) % 2].results.clear();
      start(k + 1);
    }
    for (int step = 1; collects && step < net.size; ++step) {
      const int peer = net.before(step);
      // In place, a part may be overwritten only when it has left.
      if (inPlace) co_await flight.inputs[peer];
      flight.results.push_back(net.receive(peer, 2 * k + 1,
                                           c.output + k * piece + parts.begin(peer) * element,
                                           parts.size(peer) * element));
    }
  }
  for (InFlight& flight : flights) {
    for (Arrival& arrival : flight.results) co_await arrival;
    for (Dispatch& dispatch : flight.inputs) co_await dispatch;
    for (Dispatch& dispatch : flight.reduced) co_await dispatch;
  }
}

namespace {

Task allReduceTwoPhaseOverNet(NetContext& net, const Collective& c) {
  return reduceInTwoPhases(net, c, -1);
}

}  // namespace

namespace algorithms {

Algorithm allReduceNetTwoPhase() {
  return {.name = "two_phase",
          .kinds = {CollectiveKind::AllReduce},
          .run = allReduceTwoPhaseOverNet,
          .micros = twoStepsMicros};
}

}  // namespace algorithms

}  // namespace ctran
