#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "ctran/bootstrap/hand_over.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/core.h"
#include "ctran/engine/lane.h"
#include "ctran/engine/operation.h"
#include "ctran/select/tuner.h"

namespace ctran {

/// Longer ones are cut: that is three years, and sums with a clock do not overflow.
inline constexpr std::chrono::nanoseconds kLongestTimeout{100'000'000'000'000'000};

Deadline deadlineAfter(std::chrono::nanoseconds timeout);

/// What waits on sockets call now and then.
Interrupt interruptOf(WaitHooks* hooks);

/// What communicators have in common wherever their ranks are: calls enter, are validated and find
/// their lane, where they run or are queued. What the lanes move data through is the derived class'
/// matter.
class LaneCommunicator : public Communicator,
                         public std::enable_shared_from_this<LaneCommunicator> {
 public:
  ~LaneCommunicator() override;

  int rank() const override { return core_.rank(); }
  int size() const override { return core_.size(); }
  const std::string& name() const override { return core_.name; }
  std::chrono::nanoseconds timeout() const override;
  void setTimeout(std::chrono::nanoseconds timeout) override;
  void setHints(const std::map<std::string, std::string>& hints) override;
  std::shared_ptr<const CallHints> hintsOfCall(
      const std::map<std::string, std::string>& hints) const override;
  /// What setHints has set; null if it was never called.
  const std::shared_ptr<const CallHints>& standingHints() const { return standing_; }

  void run(const Collective& collective, std::chrono::nanoseconds timeout,
           WaitHooks* hooks) override;
  std::shared_ptr<Work> post(Collective collective, std::chrono::nanoseconds timeout,
                             std::shared_ptr<void> keepAlive) override;
  std::shared_ptr<Communicator> split(std::span<const int> ranks, const std::string& name,
                                      std::chrono::nanoseconds timeout, WaitHooks* hooks) override;
  void abort(const std::string& reason) override;
  void finalize(WaitHooks* hooks) override;

  /// What would serve a call in which every rank contributes that many bytes (see
  /// contributionBytes) of that type, and why.
  Explanation explain(CollectiveKind kind, size_t bytes, DataType type,
                      std::shared_ptr<const CallHints> hints = nullptr) const;
  /// Measures what there is to choose from and uses the result from now on, here and in later
  /// communicators of as many ranks, spread alike, on machines like this one. Rank 0 keeps it.
  /// Collective; in nobody's hurry.
  virtual TuningTable tune(const TuneOptions& options) = 0;

  /// What finalize does in the end: the others no longer count on this rank. Idempotent.
  virtual void leave() = 0;

  // For what is built on a communicator of its own: windows.

  /// The ranks with which this one shares memory, itself among them, in order.
  virtual std::vector<int> neighbours() const = 0;
  /// Gives to those `bytes` of fresh memory and what each of them brings, in their order.
  /// Collective over all ranks.
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
  void addDependent(const std::shared_ptr<LaneCommunicator>& dependent);

  // For the progress thread; they concern the lanes in which nobody waits.
  Core& core() { return core_; }
  bool idle();         ///< whether nothing is queued in any lane
  bool needsDriver();  ///< whether something is queued in which nobody waits
  bool progress();     ///< goes as far as possible; whether something happened
  int awaited();       ///< the only rank that can let it go on, or -1
  bool stillWaitsFor(int rank);
  int64_t checkStuck(int64_t now);

 protected:
  LaneCommunicator(const CommunicatorOptions& options, Board& board, int sharers);

  virtual Lane& collectives() = 0;
  /// The plan that stands in for an algorithm that the user names, if one does.
  virtual std::shared_ptr<const PlanAlgorithm> namedPlan(const Collective&) const { return {}; }
  virtual Explanation explainNative(CollectiveKind kind, size_t bytes, DataType type,
                                    const CallHints* hints) const = 0;
  /// With the selector that the collectives go by.
  TuningTable tuneWith(Tunable& selector, const std::string& shape, const TuneOptions& options);
  virtual std::unique_ptr<Lane> makeSendLane(int peer) = 0;
  virtual std::unique_ptr<Mailbox> makeMailbox(int peer) = 0;

  /// For destructors: the lanes refer to what derived classes own.
  void forgetLanes();

  /// Whether the group that a split makes may have ranks on several hosts.
  virtual bool spansHosts() const = 0;

  Core core_;

 private:
  class Entered;
  Lane& laneFor(const Collective& collective);
  void checkLists(const Collective& collective, const Lane& lane) const;
  Lane& receiveLane(int source, int tag);
  std::unique_ptr<Lane> makeReceiveLane(int source);
  /// Of a receive: the receives with which it shares messages, and which were called before it.
  std::vector<Condition> olderReceives(const Collective& collective);
  std::shared_ptr<Operation> enqueue(Lane& lane, Collective&& collective, int64_t timeoutNanos,
                                     std::shared_ptr<void> keepAlive);
  int64_t nanosOr(std::chrono::nanoseconds timeout) const;
  std::shared_ptr<const PlanAlgorithm> planFor(const Collective& collective) const;
  template <class Visit>
  void forEachLane(Visit visit);
  std::vector<std::weak_ptr<LaneCommunicator>> dependents();

  std::map<std::string, std::string> hints_;
  std::shared_ptr<const CallHints> standing_;
  std::atomic<int64_t> timeoutNanos_;
  std::atomic<bool> entered_{false};  // by a thread that is in a call
  std::atomic<bool> finalized_{false};

  /// [2 * peer + (1 if sending)], the last for receives from any rank. Made when first used; of
  /// receives as many as there are tags that are waited for at a time. Read without locks by the
  /// progress thread.
  std::vector<std::atomic<Lane*>> channels_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;  ///< made when first used
  std::vector<std::unique_ptr<Lane>> added_;
  std::atomic<bool> serves_{false};
  std::mutex dependentsMutex_;
  std::vector<std::weak_ptr<LaneCommunicator>> dependents_;
};

}  // namespace ctran
