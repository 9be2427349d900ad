#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/base/per_rank.h"
#include "ctran/base/work.h"
#include "ctran/bootstrap/hand_over.h"
#include "ctran/bootstrap/store.h"
#include "ctran/collective/collective.h"
#include "ctran/engine/collective_queue.h"
#include "ctran/engine/core.h"
#include "ctran/engine/local_watch.h"
#include "ctran/engine/operation.h"
#include "ctran/engine/operation_queue.h"
#include "ctran/select/named_plans.h"
#include "ctran/select/selector.h"
#include "ctran/select/tuner.h"
#include "ctran/topology/host_map.h"
#include "ctran/transport/shm/arena.h"
#include "ctran/transport/transport.h"

namespace ctran {

/// Longer ones are cut: that is three years, and sums with a clock do not overflow.
inline constexpr std::chrono::nanoseconds kLongestTimeout{100'000'000'000'000'000};

Deadline deadlineAfter(std::chrono::nanoseconds timeout);

/// What waits on sockets call now and then.
Interrupt interruptOf(WaitHooks* hooks);

struct CommunicatorOptions {
  int rank = 0;
  int size = 1;
  std::string name = "world";    ///< for people and for keys in the store
  std::shared_ptr<Store> store;  ///< not needed when size is 1
  std::chrono::nanoseconds timeout = std::chrono::seconds(600);  ///< of creation and of operations
  std::map<std::string, std::string> hints;
  bool gpus = false;  ///< it is to be the control of a GpuCommunicator; hints name what GPUs have
};

/// A communicator that is a part of another one: what it does not take from that.
struct PartOptions {
  /// Per rank of the new one a number, equal where ranks count as being on one host; empty: they
  /// count as being where they do anyway.
  std::vector<int> hosts = {};
  bool gpus = false;  ///< as in CommunicatorOptions
};

struct HostMemory;

/// A number that no other communicator of this process has; not 0.
uint64_t newToken();

/// A group of ranks and the operations among them.
///
/// What it is made of depends on where its ranks are. All on one host share an arena, and are each
/// other's only company. Ranks of several hosts have a transport, and those that share a host an
/// arena too. Everything else is the same.
///
/// Threads: one at a time per communicator; `abort`, `isAborted` and Work::test from any thread at
/// any time. Collectives run in the order of their calls; sends and receives have an order of their
/// own per peer and direction.
class Communicator final : public std::enable_shared_from_this<Communicator>,
                           private Driver,
                           private Transport::Listener {
 public:
  /// Collective over all ranks of `options.size`. Throws Error. `hooks` as for `run`.
  static std::shared_ptr<Communicator> create(const CommunicatorOptions& options,
                                              WaitHooks* hooks = nullptr);

  ~Communicator() override;

  int rank() const { return core_.rank(); }
  int size() const { return core_.size(); }
  const std::string& name() const { return core_.name; }
  uint64_t token() const { return token_; }
  std::chrono::nanoseconds timeout() const;
  void setTimeout(std::chrono::nanoseconds timeout);
  /// From now on these count instead of those of creation. All ranks set the same ones between the
  /// same two calls. Throws Error(InvalidArgument) for what `callHints` refuses.
  void setHints(const std::map<std::string, std::string>& hints);
  /// What setHints has set; null if it was never called.
  const std::shared_ptr<const CallHints>& standingHints() const { return standing_; }
  /// What Collective::hints is for a call with these hints: they come before the communicator's.
  /// Throws as setHints does.
  std::shared_ptr<const CallHints> hintsOfCall(
      const std::map<std::string, std::string>& hints) const;

  /// Runs the operation to its end on the caller's thread, after all operations posted before it on
  /// the same queue. A zero `timeout` means the communicator's. `hooks` are told before the thread
  /// blocks for longer than a moment, see WaitHooks. Throws Error; unless its kind is
  /// InvalidArgument, the communicator is broken from then on.
  void run(const Collective& collective, std::chrono::nanoseconds timeout = {},
           WaitHooks* hooks = nullptr);

  /// Queues the operation and returns at once. `keepAlive` is released when the operation has
  /// ended. Throws Error(InvalidArgument), or the error that has broken the communicator.
  std::shared_ptr<Work> post(Collective collective, std::chrono::nanoseconds timeout = {},
                             std::shared_ptr<void> keepAlive = nullptr);

  /// A communicator of the listed ranks of this one, in that order. Collective over all ranks of
  /// this communicator; every member of a group passes the same list, a rank that joins none passes
  /// an empty one and gets nullptr. `hooks` as for `run`.
  std::shared_ptr<Communicator> split(std::span<const int> ranks, const std::string& name,
                                      std::chrono::nanoseconds timeout = {},
                                      WaitHooks* hooks = nullptr);
  /// The same for the engine's own use: the hints of this communicator that name algorithms do not
  /// count there.
  std::shared_ptr<Communicator> splitPart(std::span<const int> ranks, const std::string& name,
                                          const PartOptions& part, WaitHooks* hooks = nullptr);

  /// Ends every blocked and every later operation of all ranks with that error. Any thread.
  void breakWith(const Error& error);
  /// The same with Error(Aborted).
  void abort(const std::string& reason);
  /// Whether the communicator is broken: aborted, timed out, a peer lost, a mismatch. Any thread.
  bool isAborted() const;

  /// Waits for everything posted, then leaves. Peers that still need this rank get an error that
  /// names it. Later calls throw. Idempotent. `hooks` as for `run`; when they end the wait, the
  /// communicator is as before. Throws Error(Mismatch), after leaving, if another rank is known to
  /// have called another last collective.
  void finalize(WaitHooks* hooks = nullptr);

  /// What would serve a call in which every rank contributes that many bytes (see
  /// contributionBytes) of that type, and why.
  Explanation explain(CollectiveKind kind, size_t bytes, DataType type,
                      std::shared_ptr<const CallHints> hints = nullptr) const;
  /// Measures what there is to choose from and uses the result from now on, here and in later
  /// communicators of as many ranks, spread alike, on machines like this one. Rank 0 keeps it.
  /// Collective.
  TuningTable tune(const TuneOptions& options);

  /// What finalize does in the end: the others no longer count on this rank. Idempotent.
  void leave();

  /// It is the control of a GpuCommunicator.
  bool isForGpus() const { return gpus_; }
  /// How its ranks are spread over hosts.
  const HostMap& map() const { return map_; }
  bool spansHosts() const { return map_.hosts() > 1; }
  /// What the ranks of this host share; null if it is this rank alone, of several hosts.
  Arena* arena() { return arena_ ? &*arena_ : nullptr; }
  /// Null on one host.
  Transport* transport() { return transport_.get(); }
  /// Large messages between hosts from and to this memory need no copy, see Transport::useDirectly.
  std::shared_ptr<void> useDirectly(std::span<std::byte> memory, std::function<bool()> isCurrent) {
    return transport_ ? transport_->useDirectly(memory, std::move(isCurrent)) : nullptr;
  }
  /// From now on what is named so for the other one is named for this one, too.
  void useMemoryOf(Communicator& other);
  /// What the hints of creation prefer; the same on all ranks.
  const Preferences& hint() const { return hint_; }
  /// Whether the hints of creation ask for reductions in the order of the ranks.
  bool sumsInRankOrder() const { return wantsRankOrder(hints_); }

  // For what is built on a communicator of its own: windows.

  /// The ranks with which this one shares memory, itself among them, in order.
  const std::vector<int>& neighbours() const { return map_.local(); }
  /// Gives to those `bytes` of fresh memory and what each of them brings, in their order.
  /// Collective over all ranks.
  HostGroup handOver(size_t bytes, UniqueFd brings, WaitHooks* hooks);
  /// One more queue. Before anything was posted.
  OperationQueue& addQueue(std::unique_ptr<OperationQueue> queue);
  /// The queue of the sends to a rank, or of the receives from it.
  OperationQueue& messageQueue(int peer, bool sends);
  /// As `post`, in a queue, from any thread, callbacks of works among them; never run here.
  /// `lazily`: somebody will wait for it in a moment.
  std::shared_ptr<Work> submit(OperationQueue& queue, Collective collective,
                               std::chrono::nanoseconds timeout,
                               std::shared_ptr<void> keepAlive = nullptr, bool lazily = false);
  /// What is posted here need not end before the program does.
  void serve() { serves_.store(true, std::memory_order_relaxed); }
  bool serves() const { return serves_.load(std::memory_order_relaxed); }
  /// Is aborted when this is.
  void addDependent(const std::shared_ptr<Communicator>& dependent);

  /// A descriptor of the memory in which this host's ranks record: see readRecording.
  int recordedAt() const { return localWatch_.memory().get(); }

  // For the progress thread; they concern the queues in which nobody waits.
  Core& core() { return core_; }
  bool idle();  ///< whether nothing is queued in any queue
  /// Error(Mismatch) if another rank is known to have called another last collective. On CPUs.
  std::optional<Error> disagreement();
  bool needsDriver();  ///< whether something is queued in which nobody waits
  bool progress();     ///< goes as far as possible; whether something happened
  int awaited();       ///< the only rank that can let it go on, or -1
  bool stillWaitsFor(int rank);
  int64_t checkStuck(int64_t now);

 private:
  friend std::shared_ptr<Communicator> makeCommunicator(const CommunicatorOptions&, HostGroup,
                                                        Deadline, WaitHooks*);
  class Entered;

  /// Of one host.
  Communicator(const CommunicatorOptions& options, HostGroup group);
  /// Of several.
  Communicator(const CommunicatorOptions& options, Hosts hosts, HostMemory memory);
  /// Watches the peers and waits until all ranks are here; then they choose alike.
  void start(WaitHooks* hooks);

  void record(uint64_t group);
  void checkList(std::span<const int> ranks) const;
  std::shared_ptr<Communicator> makeGroup(std::span<const int> ranks, CommunicatorOptions options,
                                          std::span<const int> hosts,
                                          std::chrono::nanoseconds timeout, WaitHooks* hooks);
  /// How the members of a group that is being made find each other.
  using Meet = std::function<HostGroup(Deadline, const Interrupt&)>;
  Meet meetNear(std::span<const int> ranks, const CommunicatorOptions& options,
                std::span<const int> hosts, WaitHooks* hooks);
  Meet meetFar(std::span<const int> ranks, const CommunicatorOptions& options,
               std::span<const int> hosts, WaitHooks* hooks);
  Board& board() { return board_ ? *board_ : *arena_; }
  std::unique_ptr<OperationQueue> makeSendQueue(int peer);
  std::unique_ptr<Mailbox> makeMailbox(int peer);
  bool sharesMemory(int peer) const { return arena_ && map_.hostOf(peer) == map_.host(); }
  void refuse(const Collective& collective);
  OperationQueue& queueFor(const Collective& collective);
  void checkLists(const Collective& collective, const OperationQueue& queue) const;
  OperationQueue& receiveQueue(int source, int tag);
  std::unique_ptr<OperationQueue> makeReceiveQueue(int source);
  /// Of a receive: the receives with which it shares messages, and which were called before it.
  std::vector<Condition> olderReceives(const Collective& collective);
  std::shared_ptr<Operation> enqueue(OperationQueue& queue, Collective&& collective,
                                     int64_t timeoutNanos, std::shared_ptr<void> keepAlive);
  std::shared_ptr<const CallHints> checkedHints(const std::map<std::string, std::string>& hints,
                                                bool alone) const;
  int64_t nanosOr(std::chrono::nanoseconds timeout) const;
  std::shared_ptr<const PlanAlgorithm> planFor(const Collective& collective) const;
  template <class Visit>
  void forEachQueue(Visit visit);
  std::vector<std::weak_ptr<Communicator>> dependents();

  // Driver and Transport::Listener, of several hosts.
  bool poll() override;
  void arm() override;
  bool mayHear(int rank) override { return transport_->mayHear(rank); }
  void tell(const Error& error) override;
  void tellFailure();
  void failed(const Error& error) override { core_.fail(error); }
  void wakeUp() override { core_.wakeOwn(); }

  const HostMap map_;
  // Of several hosts:
  const JobKey key_{};
  const Places places_;
  uint64_t splits_ = 0;  // so many so far
  std::optional<Arena> arena_;
  std::optional<Board> board_;  // of several hosts; of one, the arena is the board
  Core core_;
  std::optional<Recording> recording_;
  std::map<std::string, std::string> hints_;
  const bool gpus_;
  const Preferences hint_;
  std::shared_ptr<const CallHints> standing_;
  std::atomic<int64_t> timeoutNanos_;
  std::atomic<bool> entered_{false};  // by a thread that is in a call
  std::atomic<bool> finalized_{false};

  /// The queues of messages to a rank and from it, made when first used; of receives as many as
  /// there are tags that are waited for at a time. Read without locks by the progress thread.
  struct Channels {
    std::atomic<OperationQueue*> sends{nullptr}, receives{nullptr};
  };
  PerRank<Channels> channels_;
  std::atomic<OperationQueue*> receivesFromAny_{nullptr};
  PerRank<Mailbox> mailboxes_;  ///< made when first used
  std::vector<std::unique_ptr<OperationQueue>> added_;
  std::atomic<bool> serves_{false};
  std::mutex dependentsMutex_;
  std::vector<std::weak_ptr<Communicator>> dependents_;

  std::unique_ptr<Transport> transport_;
  std::unique_ptr<CollectiveQueue> collectives_;
  std::optional<NamedPlans> namedPlans_;  // of one host
  LocalWatch localWatch_;
  std::mutex tellMutex_;
  const uint64_t token_ = newToken();
  std::atomic<bool> told_{false};  // of the failure, to the end
  uint64_t watch_ = 0;             // of the transport
  uint64_t urgentWatch_ = 0;       // likewise
};

}  // namespace ctran
