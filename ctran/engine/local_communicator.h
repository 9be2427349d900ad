#pragma once

#include <memory>

#include "ctran/engine/lane_communicator.h"
#include "ctran/engine/local_watch.h"
#include "ctran/transport/shm/arena.h"

namespace ctran {

/// A communicator whose ranks share one host.
class LocalCommunicator final : public LaneCommunicator {
 public:
  LocalCommunicator(const CommunicatorOptions& options, HostGroup group);
  ~LocalCommunicator() override;

  /// Watches the peers and waits until all ranks are here.
  void start(WaitHooks* hooks);

  bool isAborted() const override { return core_.failed(); }
  void leave() override;

  /// Gives `bytes` of fresh memory to all ranks, and to all what each brings: for windows.
  /// Collective.
  HostGroup handOver(size_t bytes, UniqueFd brings, WaitHooks* hooks);
  Arena& arena() { return arena_; }

 private:
  Lane& collectives() override { return collectives_; }
  std::unique_ptr<Lane> makeChannel(int peer, bool sends) override;
  bool spansHosts() const override { return false; }
  Arena arena_;
  LocalWatch watch_;
  CollectiveLane collectives_;
};

}  // namespace ctran
