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

class GpuQueue;
class StreamOperation;
struct EnqueueOptions;
struct GpuOptions;
namespace gpu {
using Stream = struct StreamTag*;
}

/// Longer timeouts are cut to this, about three years, so that adding one to a clock cannot
/// overflow.
inline constexpr std::chrono::nanoseconds kLongestTimeout{100'000'000'000'000'000};

Deadline deadlineAfter(std::chrono::nanoseconds timeout);

/// Makes the function that code which waits on sockets calls now and then.
Interrupt interruptOf(WaitHooks* hooks);

struct CommunicatorOptions {
  int rank = 0;
  int size = 1;
  std::string name = "world";    ///< for people and for keys in the store
  std::shared_ptr<Store> store;  ///< not needed when size is 1
  std::chrono::nanoseconds timeout = std::chrono::seconds(600);  ///< of creation and of operations
  std::map<std::string, std::string> hints;
  bool gpus = false;      ///< it will be given GPUs: hints name algorithms of GPUs
  bool functions = true;  ///< functions of the program may serve its calls
};

/// Options of a communicator that is a part of another one. Everything else is taken from that one.
struct PartOptions {
  /// For each rank of the new communicator the number of its host; ranks with equal numbers count
  /// as being on one host. Empty: ranks count as being on the hosts where the parent has them.
  std::vector<int> hosts = {};
  bool gpus = false;  ///< as in CommunicatorOptions
};

struct HostMemory;

/// Returns a number that no other communicator of this process has; never 0.
uint64_t newToken();

/// A communicator is a group of ranks and the operations among them.
///
/// What it is made of depends on where its ranks are. If all are on one host, they share an arena
/// and there is no transport. If they are on several hosts there is a transport, and those that
/// share a host have an arena, too. If its ranks have been given GPUs there are operations on
/// streams. Everything else is the same.
///
/// Threads: one thread at a time uses a communicator; `abort`, `isAborted` and Work::test are safe
/// from any thread at any time. Collectives run in the order of their calls; sends and receives
/// keep an order of their own per peer and direction.
class Communicator final : public std::enable_shared_from_this<Communicator>,
                           private ProgressEngine,
                           private Transport::Listener {
 public:
  /// Creates the communicator. Collective over all ranks of `options.size`. Throws Error. `hooks`
  /// are as for `run`.
  static std::shared_ptr<Communicator> create(const CommunicatorOptions& options,
                                              WaitHooks* hooks = nullptr);

  ~Communicator() override;

  int rank() const { return core_.rank(); }
  int size() const { return core_.size(); }
  const std::string& name() const { return core_.name; }
  uint64_t token() const { return token_; }
  std::chrono::nanoseconds timeout() const;
  void setTimeout(std::chrono::nanoseconds timeout);
  /// Replaces the hints of creation from now on. All ranks set the same hints between the same two
  /// calls. Throws Error(InvalidArgument) for what `callHints` refuses.
  void setHints(const std::map<std::string, std::string>& hints);
  /// Returns what setHints has set; null if it was never called.
  const std::shared_ptr<const CallHints>& standingHints() const { return standing_; }
  /// Returns what Collective::hints has to be for a call with these hints, which override the
  /// communicator's. Throws as setHints does.
  std::shared_ptr<const CallHints> hintsOfCall(
      const std::map<std::string, std::string>& hints) const;
  /// The same of hints that may name plans which promise no result.
  std::shared_ptr<const CallHints> openHintsOfCall(
      const std::map<std::string, std::string>& hints) const;

  /// Runs the operation to its end on the caller's thread, after all operations posted before it on
  /// the same queue. A zero `timeout` means the communicator's. `hooks` are told before the thread
  /// blocks for longer than a moment, see WaitHooks. Throws Error; any kind but InvalidArgument
  /// breaks the communicator.
  void run(const Collective& collective, std::chrono::nanoseconds timeout = {},
           WaitHooks* hooks = nullptr);

  /// Queues the operation and returns at once. `keepAlive` is released when the operation has
  /// ended. Throws Error(InvalidArgument), or the error that has broken the communicator.
  /// The first operation that a function of the program serves waits until all ranks have posted
  /// it; `hooks` are told of that.
  std::shared_ptr<Work> post(Collective collective, std::chrono::nanoseconds timeout = {},
                             std::shared_ptr<void> keepAlive = nullptr, WaitHooks* hooks = nullptr);

  /// Gives each rank a GPU, so that the communicator has operations on streams. Collective, and
  /// once. Throws what GpuQueue::create throws.
  void useGpu(const GpuOptions& options, WaitHooks* hooks = nullptr);
  /// Returns the operations on streams; null without GPUs.
  std::shared_ptr<GpuQueue> gpu();
  /// Returns the same; throws Error(InvalidArgument) without GPUs.
  GpuQueue& onGpus();
  /// Enqueues a collective of memory of GPUs behind what `stream` holds, see GpuQueue::enqueue.
  std::shared_ptr<StreamOperation> enqueue(const Collective& collective, gpu::Stream stream,
                                           const EnqueueOptions& options,
                                           WaitHooks* hooks = nullptr);
  /// Enqueues sends and receives, which run at the same time.
  std::shared_ptr<StreamOperation> enqueueMessages(std::span<const Collective> messages,
                                                   gpu::Stream stream,
                                                   const EnqueueOptions& options);

  /// Makes a communicator of the listed ranks of this one, in that order. Collective over all ranks
  /// of this communicator; every member of a group passes the same list, a rank that joins none
  /// passes an empty one and gets nullptr. `hooks` are as for `run`.
  std::shared_ptr<Communicator> split(std::span<const int> ranks, const std::string& name,
                                      std::chrono::nanoseconds timeout = {},
                                      WaitHooks* hooks = nullptr);
  /// Makes a group as `split` does, for the engine's own use: it does not inherit hints of this
  /// communicator that name algorithms.
  std::shared_ptr<Communicator> splitPart(std::span<const int> ranks, const std::string& name,
                                          const PartOptions& part, WaitHooks* hooks = nullptr);

  /// Ends every blocked and every later operation of all ranks with that error. Safe from any
  /// thread.
  void breakWith(const Error& error);
  /// Calls `breakWith` with Error(Aborted).
  void abort(const std::string& reason);
  /// Returns whether the communicator is broken: aborted, timed out, a peer lost, a mismatch. Safe
  /// from any thread.
  bool isAborted() const;
  /// Returns the same, but does not look at GPUs.
  bool hasFailed() const;
  /// Throws the error that has broken the communicator, if one has.
  void throwIfBroken();

  /// Waits for everything posted, then leaves the communicator. Peers that still need this rank get
  /// an error that names it. Later calls throw. Idempotent. `hooks` are as for `run`; if they end
  /// the wait, the communicator is as before. Throws Error(Mismatch), after leaving, if the last
  /// collective of another rank is known to be a different call.
  void finalize(WaitHooks* hooks = nullptr);

  /// Says what would serve a call of this type in which every rank contributes `bytes` bytes (see
  /// contributionBytes), and why.
  Explanation explain(CollectiveKind kind, size_t bytes, DataType type,
                      std::shared_ptr<const CallHints> hints = nullptr) const;
  /// Measures the algorithms that there are to choose from and uses the result from now on, here
  /// and in later communicators of as many ranks, spread alike, on machines like this one. Rank 0
  /// keeps the table. Collective.
  TuningTable tune(const TuneOptions& options);

  /// Does the last step of finalize: the others no longer count on this rank. Idempotent.
  void leave();

  /// Returns whether the options said that its ranks have GPUs.
  bool isForGpus() const { return gpus_; }
  /// Tells how the ranks are spread over hosts.
  const HostMap& map() const { return map_; }
  bool spansHosts() const { return map_.hosts() > 1; }
  /// The memory that the ranks of this host share; null if there are several hosts and this rank is
  /// alone on its own.
  Arena* arena() { return arena_ ? &*arena_ : nullptr; }
  /// The connections to other hosts; null on one host.
  Transport* transport() { return transport_.get(); }
  /// Large messages between hosts from and to this memory need not be copied, see
  /// Transport::useDirectly.
  std::shared_ptr<void> useDirectly(std::span<std::byte> memory, std::function<bool()> isCurrent) {
    return transport_ ? transport_->useDirectly(memory, std::move(isCurrent)) : nullptr;
  }
  /// Applies the memory given to `useDirectly` of the other communicator to this one, too.
  void useMemoryOf(Communicator& other);
  /// What the hints of creation prefer; the same on all ranks.
  const Preferences& hint() const { return hint_; }
  /// Returns whether the hints of creation ask for reductions in the order of the ranks.
  bool sumsInRankOrder() const { return wantsRankOrder(hints_); }

  // What follows is for windows, which are built on a communicator of their own.

  /// The ranks with which this one shares memory, itself among them, in order.
  const std::vector<int>& neighbours() const { return map_.local(); }
  /// Gives `bytes` of fresh memory to those ranks, and the descriptors that each of them brings, in
  /// their order. Collective over all ranks.
  HostGroup handOver(size_t bytes, UniqueFd brings, WaitHooks* hooks);
  /// Adds a queue. Called before anything is posted.
  OperationQueue& addQueue(std::unique_ptr<OperationQueue> queue);
  /// Returns the queue of the sends to a rank, or of the receives from it.
  OperationQueue& messageQueue(int peer, bool sends);
  /// Posts an operation to a queue. Unlike `post` it may be called on any thread, also in callbacks
  /// of works, and never runs the operation itself. `lazily`: a thread will wait for it in a
  /// moment.
  std::shared_ptr<Work> submit(OperationQueue& queue, Collective collective,
                               std::chrono::nanoseconds timeout,
                               std::shared_ptr<void> keepAlive = nullptr, bool lazily = false);
  /// Operations posted here need not end before the program does.
  void serve() { serves_.store(true, std::memory_order_relaxed); }
  bool serves() const { return serves_.load(std::memory_order_relaxed); }
  /// The dependent communicator is aborted when this one is.
  void addDependent(const std::shared_ptr<Communicator>& dependent);

  /// Returns a descriptor of the memory in which this host's ranks record, see readRecording.
  int recordedAt() const { return localWatch_.memory().get(); }

  // What follows is for the progress thread; it concerns the queues for which no thread waits.
  Core& core() { return core_; }
  bool idle();  ///< returns whether nothing is queued in any queue
  /// Returns Error(Mismatch) if the last collective of another rank is known to be a different
  /// call. Only for communicators of CPUs.
  std::optional<Error> disagreement();
  bool needsDriver();  ///< returns whether something is queued for which no thread waits
  bool progress();     ///< goes as far as possible; returns whether something happened
  int awaited();       ///< returns the only rank that can let it go on, or -1
  bool stillWaitsFor(int rank);
  int64_t checkStuck(int64_t now);

 private:
  friend std::shared_ptr<Communicator> makeCommunicator(const CommunicatorOptions&, HostGroup,
                                                        Deadline, WaitHooks*);
  class Entered;

  /// Makes a communicator on one host.
  Communicator(const CommunicatorOptions& options, HostGroup group);
  /// Makes a communicator on several hosts.
  Communicator(const CommunicatorOptions& options, Hosts hosts, HostMemory memory);
  /// Watches the peers and waits until all ranks are here; then all ranks choose alike.
  void start(WaitHooks* hooks);

  void record(uint64_t group);
  void checkList(std::span<const int> ranks) const;
  std::shared_ptr<Communicator> makeGroup(std::span<const int> ranks, CommunicatorOptions options,
                                          std::span<const int> hosts,
                                          std::chrono::nanoseconds timeout, WaitHooks* hooks);
  /// A function by which the members of a group that is being made find each other.
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
  /// Returns, for a receive, the conditions that earlier receives which share messages with it have
  /// ended.
  std::vector<Condition> olderReceives(const Collective& collective);
  std::shared_ptr<Operation> append(OperationQueue& queue, Collective&& collective,
                                    int64_t timeoutNanos, std::shared_ptr<void> keepAlive);
  std::shared_ptr<const CallHints> checkedHints(const std::map<std::string, std::string>& hints,
                                                bool alone) const;
  std::shared_ptr<const CallHints> mergedHints(
      const std::map<std::string, std::string>& hints) const;
  int64_t nanosOr(std::chrono::nanoseconds timeout) const;
  std::shared_ptr<const PlanAlgorithm> planFor(const Collective& collective) const;
  void setUpFunctions(const Collective& collective, std::chrono::nanoseconds timeout,
                      WaitHooks* hooks);
  template <class Visit>
  void forEachQueue(Visit visit);
  std::vector<std::weak_ptr<Communicator>> dependents();

  // The functions of ProgressEngine and Transport::Listener, used on several hosts.
  bool poll() override;
  void arm() override;
  bool mayHear(int rank) override { return transport_->mayHear(rank); }
  void tell(const Error& error) override;
  void tellFailure();
  void failed(const Error& error) override { core_.fail(error); }
  void wakeUp() override { core_.wakeOwn(); }

  const HostMap map_;
  // The next three members are used on several hosts only.
  const JobKey key_{};
  const Places places_;
  uint64_t splits_ = 0;  // number of splits so far
  std::optional<Arena> arena_;
  std::optional<Board> board_;  // used on several hosts; on one, the arena is the board
  Core core_;
  std::optional<Recording> recording_;
  std::map<std::string, std::string> hints_;
  const bool gpus_;
  const bool takesFunctions_;
  const Preferences hint_;
  std::shared_ptr<const CallHints> standing_;
  std::atomic<int64_t> timeoutNanos_;
  std::atomic<bool> entered_{false};  // a thread is in a call
  std::atomic<bool> finalized_{false};

  /// The queues of messages to a rank and from it, made when first used. There are as many queues
  /// of receives as tags that are waited for at a time. The progress thread reads them without
  /// locks.
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
  std::unique_ptr<FunctionRunner> functions_;  // of those that serve calls here; made when needed
  std::unique_ptr<CollectiveQueue> collectives_;
  std::optional<NamedPlans> namedPlans_;  // used on one host only
  LocalWatch localWatch_;
  std::mutex tellMutex_;
  const uint64_t token_ = newToken();
  std::atomic<bool> told_{false};  // the failure was passed on completely
  uint64_t watch_ = 0;             // of the transport's descriptor
  uint64_t urgentWatch_ = 0;       // of the transport's urgent descriptor
  std::unique_ptr<GpuQueue> gpu_;  // null: its ranks have no GPUs
};

}  // namespace ctran
