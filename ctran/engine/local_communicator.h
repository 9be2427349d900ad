#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "ctran/bootstrap/hand_over.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/core.h"
#include "ctran/engine/lane.h"
#include "ctran/engine/operation.h"

namespace ctran {

/// A communicator whose ranks share one host.
class LocalCommunicator final : public Communicator,
                                public std::enable_shared_from_this<LocalCommunicator> {
 public:
  LocalCommunicator(const CommunicatorOptions& options, HostGroup group);
  ~LocalCommunicator() override;

  /// Watches the peers and waits until all ranks are here.
  void start(WaitHooks* hooks);

  int rank() const override { return core_.rank(); }
  int size() const override { return core_.size(); }
  const std::string& name() const override { return core_.name; }
  std::chrono::nanoseconds timeout() const override;
  void setTimeout(std::chrono::nanoseconds timeout) override;

  void run(const Collective& collective, std::chrono::nanoseconds timeout,
           WaitHooks* hooks) override;
  std::shared_ptr<Work> post(Collective collective, std::chrono::nanoseconds timeout,
                             std::shared_ptr<void> keepAlive) override;
  std::shared_ptr<Communicator> split(std::span<const int> ranks, const std::string& name,
                                      std::chrono::nanoseconds timeout, WaitHooks* hooks) override;
  void abort(const std::string& reason) override;
  bool isAborted() const override { return core_.failed(); }
  void finalize(WaitHooks* hooks) override;

  /// What finalize does in the end: the others no longer count on this rank. Idempotent.
  void leave();

  // For what is built on a communicator of its own: windows.

  /// Gives `bytes` of fresh memory to all ranks, and to all what each brings. Collective.
  HostGroup handOver(size_t bytes, UniqueFd brings, WaitHooks* hooks);
  /// One more lane. Before anything was posted.
  Lane& addLane(std::unique_ptr<Lane> lane);
  /// The lane of the sends to a rank, or of the receives from it.
  Lane& messageLane(int peer, bool sends);
  /// As `post`, in a lane, from any thread, callbacks of works among them; never run here.
  /// `lazily`: somebody will wait for it in a moment.
  std::shared_ptr<Work> submit(Lane& lane, Collective collective, std::chrono::nanoseconds timeout,
                               std::shared_ptr<void> keepAlive = nullptr, bool lazily = false);
  /// What is posted here need not end before the program does.
  void serve() { serves_.store(true, std::memory_order_relaxed); }
  bool serves() const { return serves_.load(std::memory_order_relaxed); }
  /// Is aborted when this is.
  void addDependent(const std::shared_ptr<LocalCommunicator>& dependent);

  // For the progress thread; they concern the lanes in which nobody waits.
  Core& core() { return core_; }
  bool idle();         ///< whether nothing is queued in any lane
  bool needsDriver();  ///< whether something is queued in which nobody waits
  bool progress();     ///< goes as far as possible; whether something happened
  int awaited();       ///< the only rank that can let it go on, or -1
  bool stillWaitsFor(int rank);
  int64_t checkStuck(int64_t now);

 private:
  class Entered;
  Lane& laneFor(const Collective& collective);
  std::shared_ptr<Operation> enqueue(Lane& lane, Collective collective, int64_t timeoutNanos,
                                     std::shared_ptr<void> keepAlive);
  int64_t nanosOr(std::chrono::nanoseconds timeout) const;
  template <class Visit>
  void forEachLane(Visit visit);
  void watchPeers();
  std::vector<std::weak_ptr<LocalCommunicator>> dependents();

  Core core_;
  const std::vector<pid_t> pids_;
  const std::vector<uint64_t> processes_;
  std::vector<UniqueFd> pidFds_;
  std::vector<uint64_t> watches_;
  std::atomic<int64_t> timeoutNanos_;
  std::atomic<bool> entered_{false};  // by a thread that is in a call
  std::atomic<bool> finalized_{false};

  CollectiveLane collectives_;
  /// [2 * peer + (1 if sending)], made when first used. Read without locks by the progress thread.
  std::vector<std::atomic<ChannelLane*>> channels_;
  std::vector<std::unique_ptr<Lane>> added_;
  std::atomic<bool> serves_{false};
  std::mutex dependentsMutex_;
  std::vector<std::weak_ptr<LocalCommunicator>> dependents_;
};

}  // namespace ctran
