#pragma once

#include <string>

#include "ctran/collective/send_recv/tcp.h"
#include "ctran/collective/tcp_context.h"
#include "ctran/engine/lane.h"

namespace ctran {

/// The collectives of a communicator on several hosts.
class TcpCollectiveLane final : public Lane {
 public:
  /// `algorithm`: the name of those to be preferred; empty for none. The same on all ranks.
  TcpCollectiveLane(Core& core, TcpTransport& transport, std::string algorithm);
  Task start(const Collective& collective) override;
  void ended() override { tcp_.end(); }
  void checkPeers() override;
  Error timeoutError(const Collective& collective, const Condition& waiting,
                     int64_t timeoutNanos) override;

 private:
  const std::string algorithm_;
  TcpContext tcp_;
};

/// What is sent to, or received from, one peer.
class TcpChannelLane final : public Lane {
 public:
  TcpChannelLane(Core& core, TcpTransport& transport, int peer, bool sends)
      : Lane(core), channel_(transport, core.rank(), peer), sends_(sends) {}
  Task start(const Collective& collective) override;
  void ended() override { core.endMessage(record_); }
  Error timeoutError(const Collective& collective, const Condition& waiting,
                     int64_t timeoutNanos) override;

 private:
  TcpChannel channel_;
  const bool sends_;
  uint64_t record_ = 0;
};

}  // namespace ctran
