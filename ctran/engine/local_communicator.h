#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>

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

  TuningTable tune(const TuneOptions& options) override;
  void leave() override;
  std::vector<int> neighbours() const override;
  Arena& arena() { return arena_; }
  /// The same on all ranks.
  const Preferences& hint() const { return hint_; }

 private:
  Lane& collectives() override { return collectives_; }
  std::shared_ptr<const PlanAlgorithm> namedPlan(const Collective& collective) const override;
  Explanation explainNative(CollectiveKind kind, size_t bytes, DataType type,
                            const CallHints* hints) const override;
  std::shared_ptr<const PlanAlgorithm> hintedPlan(const Collective& collective) const;
  std::unique_ptr<Lane> makeSendLane(int peer) override;
  std::unique_ptr<Mailbox> makeMailbox(int peer) override;
  bool spansHosts() const override { return false; }
  void agree(WaitHooks* hooks);
  void findPlans(const Preferences& user);

  /// A number that a process has in its memory.
  struct Memory {
    int process;
    const std::byte* at;
    uint64_t token;
  };
  void tryReading(const std::vector<Memory>& memories);

  Arena arena_;
  const Preferences hint_;
  const bool inRankOrder_;
  struct NamedPlan {
    std::string algorithm, why;
    std::shared_ptr<const PlanAlgorithm> plan;
  };
  std::array<NamedPlan, static_cast<size_t>(CollectiveKind::AllToAll) + 1> plans_;  ///< by kind
  /// Those that hints of calls have named so far; null where the library has none.
  mutable std::map<std::pair<CollectiveKind, std::string>, std::shared_ptr<const PlanAlgorithm>>
      hintedPlans_;
  LocalWatch watch_;
  CollectiveLane collectives_;
  uint64_t token_ = 0;  ///< others look whether they can read it
};

}  // namespace ctran
