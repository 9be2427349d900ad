#pragma once

#include <string>

#include "ctran/collective/hosts_algorithms.h"
#include "ctran/collective/send_recv/tcp.h"
#include "ctran/engine/lane.h"

namespace ctran {

/// The collectives of a communicator on several hosts.
class HostsLane final : public Lane {
 public:
  HostsLane(Core& core, TcpTransport& transport, const HostMap& map, Arena* arena,
            HostsPreference preference);
  Task start(const Collective& collective) override;
  void ended() override { call_.end(); }
  void checkPeers() override;
  int64_t graceNanos(const Condition& waiting) const override;
  Error timeoutError(const Collective& collective, const Condition& waiting,
                     int64_t timeoutNanos) override;

 private:
  bool hasCome(int rank) const;
  int awaitedOf(const Condition& waiting) const;

  const HostsPreference preference_;
  HostsCall call_;
  HostsContext hosts_;
  bool inPlan_ = false;  ///< what runs is one
};

/// What is sent to one peer on another host.
class TcpSendLane final : public MessageLane {
 public:
  TcpSendLane(Core& core, TcpTransport& transport, int peer)
      : MessageLane(core), channel_(transport, core.rank(), peer) {}
  Task start(const Collective& collective) override;

 private:
  TcpChannel channel_;
};

}  // namespace ctran
