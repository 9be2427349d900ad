#include "ctran/collective/all_reduce/two_phase.h"

#include "ctran/collective/tcp_algorithms.h"

namespace ctran {
namespace {

/// A piece of the tensor and its parts, one per rank; what is on its way for it.
struct InFlight {
  std::vector<Arrival> contributions, results;
  std::vector<Dispatch> inputs, reduced;  // inputs: per rank
};

/// Pieces of some megabytes, but not more than a thousand.
size_t pieceBytes(size_t bytes, size_t element) {
  constexpr size_t kPiece = 4 << 20;
  return std::max(kPiece, bytes / 1000) / element * element;
}

}  // namespace

Task allReduceTwoPhase(TcpContext& tcp, const Collective& c) {
  return reduceInTwoPhases(tcp, c, -1);
}

/// Reduce-scatter, then all-gather (or gather at the root), both direct: every rank is sent its
/// part by all others, reduces it in rank order, and sends the result to those who get it. Per rank
/// 2 (size - 1) / size times the data is sent and received, the least, in two steps. A tensor goes
/// in pieces: while one is reduced and collected the contributions to the next arrive.
Task reduceInTwoPhases(TcpContext& tcp, const Collective& c, int root) {
  const size_t element = sizeOf(c.type);
  const size_t piece = pieceBytes(c.blockBytes(), element);
  const auto pieces = static_cast<uint32_t>((c.blockBytes() + piece - 1) / piece);
  const bool collects = root < 0 || root == tcp.rank;
  const bool inPlace = collects && c.input == c.output;
  const auto partsOf = [&c, &tcp, piece, element](uint32_t k) {
    const size_t bytes = std::min(piece, c.blockBytes() - k * piece);
    return Partition(bytes / element, tcp.size, element);
  };
  // Of contributions to this rank's part, of two pieces; and its result where it has no output.
  const size_t room = (std::min(piece, c.blockBytes()) / element / tcp.size + 2 * 64) * element;
  std::byte* const scratch = tcp.scratch(2 * (tcp.size + 1) * room);
  const auto contribution = [scratch, room, &tcp](uint32_t k, int rank) {
    return scratch + (k % 2 * (tcp.size + 1) + rank) * room;
  };
  InFlight flights[2];

  const auto start = [&](uint32_t k) {
    const Partition parts = partsOf(k);
    InFlight& flight = flights[k % 2];
    flight.contributions.clear();
    flight.inputs.clear();
    flight.inputs.resize(tcp.size);
    for (int step = 1; step < tcp.size; ++step) {
      const int peer = tcp.before(step);
      flight.contributions.push_back(
          tcp.receive(peer, 2 * k, contribution(k, peer), parts.size(tcp.rank) * element));
    }
    for (int step = 1; step < tcp.size; ++step) {
      const int peer = tcp.after(step);
      flight.inputs[peer] = tcp.send(peer, 2 * k, c.input + k * piece + parts.begin(peer) * element,
                                     parts.size(peer) * element);
    }
  };

  if (pieces > 0) start(0);
  std::vector<const std::byte*> sources(tcp.size);
  for (uint32_t k = 0; k < pieces; ++k) {
    InFlight& flight = flights[k % 2];
    const Partition parts = partsOf(k);
    const size_t mine = k * piece + parts.begin(tcp.rank) * element;
    const size_t bytes = parts.size(tcp.rank) * element;

    for (Arrival& arrival : flight.contributions) co_await arrival;
    for (Dispatch& dispatch : flight.reduced) co_await dispatch;  // of two pieces ago
    for (int r = 0; r < tcp.size; ++r) sources[r] = contribution(k, r);
    sources[tcp.rank] = c.input + mine;
    std::byte* const result = collects ? c.output + mine : contribution(k, tcp.size);
    if (bytes > 0) {
      reduceFn(c.op.kind, c.type)(result, sources.data(), tcp.size, parts.size(tcp.rank),
                                  tcp.contributions());
    }

    flight.reduced.clear();
    for (int step = 1; step < tcp.size; ++step) {
      const int peer = tcp.after(step);
      if (root < 0 || root == peer) {
        flight.reduced.push_back(tcp.send(peer, 2 * k + 1, result, bytes));
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
    for (int step = 1; collects && step < tcp.size; ++step) {
      const int peer = tcp.before(step);
      // In place, a part may be overwritten when it has left.
      if (inPlace) co_await flight.inputs[peer];
      flight.results.push_back(tcp.receive(peer, 2 * k + 1,
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

}  // namespace ctran
