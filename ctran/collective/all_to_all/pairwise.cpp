#include "ctran/collective/all_to_all/sources.h"
#include "ctran/collective/tcp_algorithms.h"

namespace ctran {

/// n - 1 steps: in step k every rank sends to the one k after it, and receives from the one k
/// before it, so that each connection carries one block at a time. Every byte travels once.
Task allToAllPairwise(TcpContext& tcp, const Collective& c) {
  const size_t bytes = c.blockBytes();
  const Sources sources(c, tcp.rank, tcp.size);
  copyBlock(c.outputBlock(tcp.rank).data, c.inputBlock(tcp.rank).data, bytes);
  for (int step = 1; step < tcp.size; ++step) {
    const int to = tcp.after(step), from = tcp.before(step);
    Arrival arrival = tcp.receive(from, 0, c.outputBlock(from).data, bytes);
    Dispatch dispatch = tcp.send(to, 0, sources[to].data, bytes);
    co_await arrival;
    co_await dispatch;
  }
}

/// As all_to_all, with the count of each block sent ahead (buffer 0), which both compare.
Task allToAllVPairwise(TcpContext& tcp, const Collective& c) {
  const size_t element = sizeOf(c.type);
  const Sources sources(c, tcp.rank, tcp.size);
  const uint64_t own = c.inputs[tcp.rank].count;
  if (own != c.outputs[tcp.rank].count) throwCounts(c, tcp.rank, tcp.rank, own);
  copyBlock(c.outputs[tcp.rank].data, c.inputs[tcp.rank].data, own * element);
  for (int step = 1; step < tcp.size; ++step) {
    const int to = tcp.after(step), from = tcp.before(step);
    uint64_t told = 0;
    const uint64_t sent = c.inputs[to].count;
    const Block& block = c.outputs[from];
    Arrival count = tcp.receive(from, 0, reinterpret_cast<std::byte*>(&told), sizeof told);
    Arrival arrival = tcp.receive(from, 1, block.data, block.count * element);
    Dispatch telling = tcp.send(to, 0, reinterpret_cast<const std::byte*>(&sent), sizeof sent);
    Dispatch dispatch = tcp.send(to, 1, sources[to].data, sent * element);
    co_await count;
    if (told != block.count) throwCounts(c, from, tcp.rank, told);
    co_await arrival;
    co_await telling;
    co_await dispatch;
  }
}

}  // namespace ctran
