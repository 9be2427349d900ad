#include "ctran/engine/hosts_lane.h"

#include <utility>

#include "ctran/collective/hosts_algorithms.h"
#include "ctran/collective/mismatch.h"
#include "ctran/collective/signature.h"
#include "ctran/collective/tcp_algorithms.h"
#include "ctran/engine/roll_call.h"

namespace ctran {
namespace {

constexpr int64_t kGraceNanos = 500'000'000;

}  // namespace

HostsLane::HostsLane(Core& core, TcpTransport& transport, const HostMap& map, Arena* arena,
                     HostsPreference preference)
    : Lane(core),
      preference_(std::move(preference)),
      call_(core.board, transport, preference_.hash()),
      hosts_(call_, map, arena) {}

Task HostsLane::start(const Collective& collective) {
  call_.begin(collective);
  return startBetweenHosts(hosts_, collective, preference_);
}

void HostsLane::checkPeers() { checkSignatures(core.board, call_.sequence(), call_.signature()); }

/// A rank of another host that is late may wait for a neighbour, whom it can name; and a neighbour
/// that has come, for a rank of another host.
int64_t HostsLane::graceNanos(const Condition& waiting) const {
  const int rank = waiting.awaited();
  const HostMap& map = hosts_.map;
  if (!hosts_.isShared() || rank < 0) return 0;
  if (map.hostOf(rank) != map.host()) return kGraceNanos;
  return hasCome(rank) ? 2 * kGraceNanos : 0;  // that neighbour speaks first
}

bool HostsLane::hasCome(int rank) const {
  const auto& begun = core.board.control(rank).begun;
  return begun.load(std::memory_order_acquire) >= call_.sequence();
}

Error HostsLane::timeoutError(const Collective& collective, const Condition& waiting,
                              int64_t timeoutNanos) {
  return remoteTimeout(core, collective, call_.sequence(), waiting.awaited(), timeoutNanos);
}

Task TcpChannelLane::start(const Collective& collective) {
  record_ = core.beginMessage(makeRecord(collective, 0, 0));
  return sends_ ? sendTcp(channel_, collective) : recvTcp(channel_, collective);
}

Error TcpChannelLane::timeoutError(const Collective& collective, const Condition&,
                                   int64_t timeoutNanos) {
  return channelTimeout(core, collective, timeoutNanos);
}

}  // namespace ctran
