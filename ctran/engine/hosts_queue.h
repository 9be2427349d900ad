#pragma once

#include <string>

#include "ctran/collective/send_recv/net.h"
#include "ctran/collective/start_barrier.h"
#include "ctran/engine/collective_queue.h"

namespace ctran {

/// The queue of the collectives of a communicator on several hosts.
class HostsQueue final : public CollectiveQueue {
 public:
  HostsQueue(Core& core, Transport& transport, const HostMap& map, Arena* arena, Selector selector);
  Task start(const Collective& collective) override;
  void ended() override { call_.end(); }
  void checkPeers() override;
  int64_t graceNanos(const Condition& waiting) const override;
  Error timeoutError(const Collective& collective, const Condition& waiting,
                     int64_t timeoutNanos) override;
  void agree(Communicator& communicator, WaitHooks* hooks) override;
  void recordTraffic(Recording& recording) override {
    if (hosts_.shm() != nullptr) hosts_.shm()->recordTraffic(recording);
  }

 private:
  bool hasCome(int rank) const;
  int awaitedOf(const Condition& waiting) const;

  HostsCall call_;
  HostsContext hosts_;
  StartBarrier start_;   // runs the first collective
  bool inPlan_ = false;  ///< what runs is a plan
};

/// The queue of the sends to one peer on another host.
class NetSendQueue final : public MessageQueue {
 public:
  NetSendQueue(Core& core, Transport& transport, int peer)
      : MessageQueue(core), channel_(transport, core.rank(), peer) {}
  Task start(const Collective& collective) override;

 private:
  NetChannel channel_;
};

}  // namespace ctran
