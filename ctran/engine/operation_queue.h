#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ctran/base/work.h"
#include "ctran/collective/send_recv/receive.h"
#include "ctran/collective/send_recv/shm.h"
#include "ctran/engine/core.h"
#include "ctran/trace/operation_trace.h"

namespace ctran {

class Operation;

/// A first-in-first-out queue of operations. Queues of a communicator progress independently.
///
/// At any time one thread drives a queue: the user's thread inside a blocking call, if the queue is
/// empty; otherwise whoever holds `driving_`, under which nobody blocks and no foreign code runs.
class OperationQueue {
 public:
  enum class Records { Collectives, Messages };
  explicit OperationQueue(Core& core, Records records = Records::Messages)
      : core(core), records_(records) {}
  virtual ~OperationQueue();

  Core& core;

  /// Starts the operation and runs it up to its first wait.
  virtual Task start(const Collective& collective) = 0;
  /// The operation has completed.
  virtual void ended() = 0;
  /// Slow checks for a wait that takes long. Throws Error(Mismatch).
  virtual void checkPeers() {}
  /// How much longer than its deadline an operation waits, for others who may know better why.
  virtual int64_t graceNanos(const Condition&) const { return 0; }
  /// Which ranks have not come yet, as Error(Timeout).
  virtual Error timeoutError(const Collective& collective, const Condition& waiting,
                             int64_t timeoutNanos) = 0;

  /// Runs the operation on this thread. Only while `idle()`.
  void run(const Collective& collective, int64_t timeoutNanos, WaitHooks* hooks);

  /// Whether nothing is queued; then all operations so far have ended.
  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }
  void push(std::shared_ptr<Operation> operation);

  /// Threads that wait for an operation of this queue and drive it meanwhile.
  std::atomic<int> waiters{0};
  /// One more queue for the same; made when all others are taken. Read without locks.
  std::atomic<OperationQueue*> next{nullptr};

  bool needsDriver() const { return !idle() && waiters.load(std::memory_order_acquire) == 0; }

  /// That all operations with a tag that have been queued so far have ended. Holds at once if there
  /// are none.
  Condition ended(int tag);

  /// Goes as far as possible without waiting, unless another thread is doing so; true if something
  /// happened. All errors end in the operations.
  bool advance();

  /// The rank that the queue waits for; -1 if that is not known, or nothing is queued.
  int awaited();
  /// Whether the queue waits for that rank, and for nothing else: nothing to do before it moves.
  bool stillWaitsFor(int rank);
  /// The same for a thread that must not wait for another one that is driving: that has news.
  bool stillWaitsForIfFree(int rank);

  /// Fails the communicator if an operation is late or hopeless. Returns when to look again.
  int64_t checkStuck(int64_t now);

  /// A call that cannot start, as the communicator is broken. After a mismatch the first one is
  /// recorded: it tells what this rank has called where the others disagree. Only while `idle()`.
  void refused(const Collective& collective, ErrorKind why);

  /// For `start`: what runs, see Recording::choice.
  void chose(uint32_t choice) { trace_.chose(choice); }

 private:
  void beginTrace(const Collective& collective, uint64_t calledAt);
  void trace(const Collective& collective, uint64_t calledAt);
  void failTrace(ErrorKind kind);
  void logStart(const Collective& collective);
  void logEnd(const Collective& collective);
  void countQueued(int64_t change);
  std::shared_ptr<Operation> step(bool& moved, std::shared_ptr<Operation>& started);
  bool waitsFor(int rank);
  int64_t checkWait(const Collective& collective, const Condition& waiting, int64_t deadline,
                    int64_t timeoutNanos, int64_t now);
  std::shared_ptr<Operation> head();
  void pop();

  const Records records_;
  OperationTrace trace_;  // of the head; used by whoever drives
  bool hasFailed_ = false;
  int64_t loggedAt_ = 0;  // when the head started; 0: not known, as nothing was logged
  std::mutex driving_;
  Task task_;  // of the head
  std::atomic<size_t> pending_{0};
  std::atomic<uint64_t> ended_{0};  // operations that have been queued and have ended
  std::mutex queueMutex_;           // guards what follows
  struct Queued {
    std::shared_ptr<Operation> operation;
    int64_t earliestDeadline;  // of this operation and those behind it
  };
  std::deque<Queued> queue_;
};

/// A queue of messages.
class MessageQueue : public OperationQueue {
 public:
  explicit MessageQueue(Core& core) : OperationQueue(core) {}
  void ended() override { core.endMessage(record_); }
  Error timeoutError(const Collective& collective, const Condition& waiting,
                     int64_t timeoutNanos) override;

 protected:
  void begin(const Collective& collective);

 private:
  uint64_t record_ = 0;
};

/// What is sent to one peer on the same host.
class ShmSendQueue final : public MessageQueue {
 public:
  ShmSendQueue(Core& core, Arena& arena, int peer) : MessageQueue(core), channel_(arena, peer) {}
  Task start(const Collective& collective) override;

 private:
  ShmChannel channel_;
};

/// What is received from one peer, or from all of them, wherever they are.
class ReceiveQueue final : public MessageQueue {
 public:
  ReceiveQueue(Core& core, const std::vector<Mailbox*>& mailboxes)
      : MessageQueue(core), context_(mailboxes) {}
  Task start(const Collective& collective) override;

 private:
  ReceiveContext context_;
};

}  // namespace ctran
