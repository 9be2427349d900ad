#include "ctran/collective/start_barrier.h"

#include "ctran/base/error.h"

namespace ctran {
namespace {

Collective broadcastOf(void* data, size_t bytes) {
  Collective c;
  c.kind = CollectiveKind::Broadcast;
  c.count = bytes;
  c.output = static_cast<std::byte*>(data);
  c.input = c.output;
  return c;
}

}  // namespace

/// Inside each host a barrier; among the first ranks of all hosts, or all ranks if none share one,
/// another one and a broadcast of the text's length, and of the text, if there is one; inside again
/// the same broadcasts, which nobody leaves before the first rank comes. Rank 0 is the first of its
/// host, and that is the first one.
Task startBarrier(StartBarrier& start, const Collective& barrier) {
  HostsContext& hosts = start.hosts;
  const bool shares = hosts.isShared();
  const bool isFirst = !shares || hosts.map.index() == 0;
  if (shares) {
    Task task = hosts.local(barrier);
    co_await task;
  }
  if (isFirst) {
    Task task = hosts.betweenFirst("dissemination", barrier, 0);
    co_await task;
  }
  uint64_t bytes = start.text.size();
  for (uint32_t part = 0; part < 2; ++part) {
    const Collective step = part == 0 ? broadcastOf(&bytes, sizeof bytes)
                                      : broadcastOf(start.text.data(), start.text.size());
    if (isFirst) {
      Task task = hosts.betweenFirst("binomial", step, 1 + part);
      co_await task;
    }
    if (shares) {
      Task task = hosts.local(step);
      co_await task;
    }
    if (bytes == 0) co_return;
    if (bytes > StartBarrier::kLongest) {
      throw Error(ErrorKind::Mismatch,
                  "rank 0 says " + std::to_string(bytes) + " bytes, which is too much", {0},
                  "new_comm");
    }
    start.text.resize(bytes);
  }
}

}  // namespace ctran
