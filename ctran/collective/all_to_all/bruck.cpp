#include "ctran/collective/tcp_algorithms.h"

namespace ctran {

/// Bruck et al., 1997. A block that has to go k ranks on is passed on by 2^j for each bit j of k,
/// together with all others of that bit: log2(n) steps, rounded up, for n / 2 * log2(n) blocks sent
/// by each rank. For small blocks, where a message costs more than its bytes.
Task allToAllBruck(TcpContext& tcp, const Collective& c) {
  const size_t bytes = c.blockBytes();
  const auto half = static_cast<size_t>((tcp.size + 1) / 2);
  // blocks[i]: at first the one for the rank i after this; in the end that of the rank i before.
  std::byte* const blocks = tcp.scratch(bytes * (tcp.size + 2 * half));
  std::byte* const sent = blocks + bytes * tcp.size;
  std::byte* const got = sent + bytes * half;
  for (int i = 0; i < tcp.size; ++i) {
    copyBlock(blocks + i * bytes, c.inputBlock(tcp.after(i)).data, bytes);
  }
  uint32_t step = 0;
  for (int distance = 1; distance < tcp.size; distance *= 2, ++step) {
    size_t count = 0;
    for (int i = distance; i < tcp.size; ++i) {
      if ((i & distance) != 0) copyBlock(sent + count++ * bytes, blocks + i * bytes, bytes);
    }
    Arrival arrival = tcp.receive(tcp.before(distance), step, got, count * bytes);
    Dispatch dispatch = tcp.send(tcp.after(distance), step, sent, count * bytes);
    co_await arrival;
    co_await dispatch;
    count = 0;
    for (int i = distance; i < tcp.size; ++i) {
      if ((i & distance) != 0) copyBlock(blocks + i * bytes, got + count++ * bytes, bytes);
    }
  }
  for (int i = 0; i < tcp.size; ++i) {
    copyBlock(c.outputBlock(tcp.before(i)).data, blocks + i * bytes, bytes);
  }
}

}  // namespace ctran
