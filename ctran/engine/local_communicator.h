#pragma once

#include <memory>

#include "ctran/engine/lane_communicator.h"
#include "ctran/engine/local_watch.h"
#include "ctran/select/tuner.h"
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

  /// What would serve a call in which every rank contributes that many bytes, and why.
  Explanation explain(CollectiveKind kind, size_t bytes) const;
  /// Measures what there is to choose from and uses the result from now on, here and in later
  /// communicators of as many ranks on machines like this one. Collective; in nobody's hurry.
  TuningTable tune(const TuneOptions& options);
  void leave() override;
  std::vector<int> neighbours() const override;
  Arena& arena() { return arena_; }
  /// The same on all ranks.
  const Preferences& hint() const { return hint_; }

 private:
  Lane& collectives() override { return collectives_; }
  std::unique_ptr<Lane> makeSendLane(int peer) override;
  std::unique_ptr<Mailbox> makeMailbox(int peer) override;
  bool spansHosts() const override { return false; }
  void agree(WaitHooks* hooks);

  /// A number that a process has in its memory.
  struct Memory {
    int process;
    const std::byte* at;
    uint64_t token;
  };
  void tryReading(const std::vector<Memory>& memories);

  Arena arena_;
  const Preferences hint_;
  LocalWatch watch_;
  CollectiveLane collectives_;
  uint64_t token_ = 0;  ///< others look whether they can read it
};

}  // namespace ctran
