#include <string>

#include "ctran/base/error.h"
#include "ctran/collective/tcp_algorithms.h"

namespace ctran {
namespace {

/// What is sent from: the input, or a copy of it where blocks of the output are the same memory, as
/// what arrives would overwrite what has not left yet.
class Sources {
 public:
  Sources(const Collective& c, int rank, int size) {
    const size_t element = sizeOf(c.type);
    size_t bytes = 0;
    for (int r = 0; r < size; ++r) {
      if (r != rank && inPlace(c, r)) bytes += c.inputBlock(r).count * element;
    }
    copy_.resize(bytes);
    std::byte* at = copy_.data();
    for (int r = 0; r < size; ++r) {
      const Block block = c.inputBlock(r);
      blocks_.push_back(block);
      if (r == rank || !inPlace(c, r) || block.count == 0) continue;
      std::memcpy(at, block.data, block.count * element);
      blocks_.back().data = at;
      at += block.count * element;
    }
  }
  const Block& operator[](int rank) const { return blocks_[rank]; }

 private:
  static bool inPlace(const Collective& c, int rank) {
    return c.inputBlock(rank).data == c.outputBlock(rank).data;
  }
  std::vector<std::byte> copy_;
  std::vector<Block> blocks_;
};

[[noreturn]] void throwCounts(const Collective& c, int peer, int rank, uint64_t sent) {
  throw Error(ErrorKind::Mismatch,
              "all_to_all_v: rank " + std::to_string(peer) + " sends " + std::to_string(sent) +
                  " elements to rank " + std::to_string(rank) + ", which expects " +
                  std::to_string(c.outputs[peer].count),
              {peer, rank}, c.describe(),
              "input_split_sizes[j] on rank i must equal output_split_sizes[i] on rank j");
}

}  // namespace

/// One step: every block goes straight to its rank, nearest first. Every byte travels once.
Task allToAllDirect(TcpContext& tcp, const Collective& c) {
  const size_t bytes = c.blockBytes();
  const Sources sources(c, tcp.rank, tcp.size);
  std::vector<Arrival> arrivals;
  std::vector<Dispatch> dispatches;
  for (int step = 1; step < tcp.size; ++step) {
    const int peer = tcp.before(step);
    arrivals.push_back(tcp.receive(peer, 0, c.outputBlock(peer).data, bytes));
  }
  for (int step = 1; step < tcp.size; ++step) {
    const int peer = tcp.after(step);
    dispatches.push_back(tcp.send(peer, 0, sources[peer].data, bytes));
  }
  copyBlock(c.outputBlock(tcp.rank).data, c.inputBlock(tcp.rank).data, bytes);
  for (Arrival& arrival : arrivals) co_await arrival;
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

/// As all_to_all, with the counts of each pair sent ahead (buffer 0), which both compare.
Task allToAllVDirect(TcpContext& tcp, const Collective& c) {
  const size_t element = sizeOf(c.type);
  const Sources sources(c, tcp.rank, tcp.size);
  if (c.inputs[tcp.rank].count != c.outputs[tcp.rank].count) {
    throwCounts(c, tcp.rank, tcp.rank, c.inputs[tcp.rank].count);
  }
  std::vector<uint64_t> sent(tcp.size), told(tcp.size);
  std::vector<Arrival> arrivals(tcp.size), counts(tcp.size);
  std::vector<Dispatch> dispatches;
  for (int step = 1; step < tcp.size; ++step) {
    const int peer = tcp.before(step);
    const Block& block = c.outputs[peer];
    counts[peer] =
        tcp.receive(peer, 0, reinterpret_cast<std::byte*>(&told[peer]), sizeof told[peer]);
    arrivals[peer] = tcp.receive(peer, 1, block.data, block.count * element);
  }
  for (int step = 1; step < tcp.size; ++step) {
    const int peer = tcp.after(step);
    sent[peer] = c.inputs[peer].count;
    dispatches.push_back(
        tcp.send(peer, 0, reinterpret_cast<const std::byte*>(&sent[peer]), sizeof sent[peer]));
    dispatches.push_back(tcp.send(peer, 1, sources[peer].data, sent[peer] * element));
  }
  copyBlock(c.outputs[tcp.rank].data, c.inputs[tcp.rank].data, c.inputs[tcp.rank].count * element);
  for (int step = 1; step < tcp.size; ++step) {
    const int peer = tcp.before(step);
    co_await counts[peer];
    if (told[peer] != c.outputs[peer].count) throwCounts(c, peer, tcp.rank, told[peer]);
  }
  for (Arrival& arrival : arrivals) co_await arrival;
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

}  // namespace ctran
