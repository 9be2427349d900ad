#include "ctran/collective/tcp_algorithms.h"

namespace ctran {

/// For all_gather and all_gather_v (Bruck et al., 1997). In step k a rank sends all blocks that it
/// has to the one 2^k before it, and gets as many from the one 2^k after it: log2(n) steps, rounded
/// up, for any n; n - 1 blocks sent by each rank. Blocks are kept in the order in which they come,
/// starting with the rank's own, and copied to their places in the end.
Task allGatherBruck(TcpContext& tcp, const Collective& c) {
  const size_t element = sizeOf(c.type);
  std::vector<size_t> offsets{0};
  for (int i = 0; i < tcp.size; ++i) {
    offsets.push_back(offsets.back() + c.outputBlock(tcp.after(i)).count * element);
  }
  std::byte* const blocks = tcp.scratch(offsets.back());
  copyBlock(blocks, c.input, c.blockBytes());
  uint32_t step = 0;
  for (int distance = 1; distance < tcp.size; distance *= 2, ++step) {
    const int count = std::min(distance, tcp.size - distance);
    Arrival arrival = tcp.receive(tcp.after(distance), step, blocks + offsets[distance],
                                  offsets[distance + count] - offsets[distance]);
    Dispatch dispatch = tcp.send(tcp.before(distance), step, blocks, offsets[count]);
    co_await arrival;
    co_await dispatch;
  }
  for (int i = 0; i < tcp.size; ++i) {
    copyBlock(c.outputBlock(tcp.after(i)).data, blocks + offsets[i], offsets[i + 1] - offsets[i]);
  }
}

}  // namespace ctran
