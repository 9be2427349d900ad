#pragma once

#include <string>

#include "ctran/collective/meeting.h"
#include "ctran/collective/send_recv/net.h"
#include "ctran/engine/lane.h"
#include "ctran/select/selector.h"

namespace ctran {

/// The collectives of a communicator on several hosts.
class HostsLane final : public Lane {
 public:
  HostsLane(Core& core, Transport& transport, const HostMap& map, Arena* arena, Selector selector);
  Task start(const Collective& collective) override;
  void ended() override { call_.end(); }
  void checkPeers() override;
  int64_t graceNanos(const Condition& waiting) const override;
  Error timeoutError(const Collective& collective, const Condition& waiting,
                     int64_t timeoutNanos) override;

  Selector selector;  ///< only while nothing runs

  /// What rank 0 has to say to all in the first collective, which makes the communicator; after
  /// that, what rank 0 has said.
  std::string& word() { return meeting_.word; }

 private:
  bool hasCome(int rank) const;
  int awaitedOf(const Condition& waiting) const;

  HostsCall call_;
  HostsContext hosts_;
  Meeting meeting_;
  bool inPlan_ = false;  ///< what runs is one
};

/// What is sent to one peer on another host.
class NetSendLane final : public MessageLane {
 public:
  NetSendLane(Core& core, Transport& transport, int peer)
      : MessageLane(core), channel_(transport, core.rank(), peer) {}
  Task start(const Collective& collective) override;

 private:
  NetChannel channel_;
};

}  // namespace ctran
