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

/// A first-in-first-out queue of operations. The queues of a communicator progress independently.
///
/// One thread at a time drives a queue: the user's thread inside a blocking call, if the queue is
/// empty; otherwise the thread that holds `driving_`. A thread that holds it neither blocks nor
/// runs foreign code.
class OperationQueue {
 public:
  enum class Records { Collectives, Messages, Nothing };
  explicit OperationQueue(Core& core, Records records = Records::Messages)
      : core(core), records_(records) {}
  virtual ~OperationQueue();

  Core& core;

  /// Starts the operation and runs it up to its first wait.
  virtual Task start(const Collective& collective) = 0;
  /// Is called when the operation has completed.
  virtual void ended() = 0;
  /// Does the slow checks of a wait that takes long. Throws Error(Mismatch).
  virtual void checkPeers() {}
  /// Returns how much longer than its deadline an operation waits, for ranks that may know better
  /// who is to blame.
  virtual int64_t graceNanos(const Condition&) const { return 0; }
  /// Makes the Error(Timeout) which says which ranks have not come yet.
  virtual Error timeoutError(const Collective& collective, const Condition& waiting,
                             int64_t timeoutNanos) = 0;

  /// Runs the operation on this thread. May be called only while `idle()`.
  void run(const Collective& collective, int64_t timeoutNanos, WaitHooks* hooks);

  /// Returns whether nothing is queued; then all operations so far have ended.
  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }
  void push(std::shared_ptr<Operation> operation);

  /// The number of threads that wait for an operation of this queue and drive it meanwhile.
  std::atomic<int> waiters{0};
  /// Another queue for the same messages, made when all earlier ones are taken. It is read without
  /// locks.
  std::atomic<OperationQueue*> next{nullptr};

  bool needsDriver() const { return !idle() && waiters.load(std::memory_order_acquire) == 0; }

  /// Returns a condition that holds when all operations with this tag that are queued now have
  /// ended. It holds at once if there are none.
  Condition ended(int tag);

  /// Goes as far as possible without waiting, unless another thread is doing so. Returns whether
  /// something happened. All errors end in the operations.
  bool advance();

  /// Returns the rank that the queue waits for; -1 if it is not known, or nothing is queued.
  int awaited();
  /// Returns whether the queue waits for that rank and for nothing else, so that there is nothing
  /// to do before that rank moves.
  bool stillWaitsFor(int rank);
  /// Does the same for a thread that must not block on another one that is driving; then it returns
  /// false, as that thread may have made progress.
  bool stillWaitsForIfFree(int rank);

  /// Fails the communicator if an operation is late or can never end. Returns when to look again.
  int64_t checkStuck(int64_t now);

  /// Records a call that cannot start because the communicator is broken: after a mismatch the
  /// first such call, because it tells what this rank has called where the others disagree. May be
  /// called only while `idle()`.
  void refused(const Collective& collective, ErrorKind why);

  /// The operations are part of others, which their caller records. To be called before the first.
  void recordNothing() { records_ = Records::Nothing; }

  /// `start` calls this with the number of what runs, see Recording::choice.
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

  Records records_;
  OperationTrace trace_;  // of the first operation in the queue; used by the driving thread
  bool hasFailed_ = false;
  int64_t loggedAt_ = 0;  // when the first operation started; 0: not known, as nothing was logged
  std::mutex driving_;
  Task task_;  // of the first operation in the queue
  std::atomic<size_t> pending_{0};
  std::atomic<uint64_t> ended_{0};  // number of operations that were queued and have ended
  std::mutex queueMutex_;           // guards what follows
  struct Queued {
    std::shared_ptr<Operation> operation;
    int64_t earliestDeadline;  // of this operation and those behind it
  };
  std::deque<Queued> queue_;
};

/// A queue of sends to one peer, or of receives.
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

/// The queue of the sends to one peer on the same host.
class ShmSendQueue final : public MessageQueue {
 public:
  ShmSendQueue(Core& core, Arena& arena, int peer) : MessageQueue(core), channel_(arena, peer) {}
  Task start(const Collective& collective) override;

 private:
  ShmChannel channel_;
};

/// The queue of receives from one peer, or from all of them, wherever they are.
class ReceiveQueue final : public MessageQueue {
 public:
  ReceiveQueue(Core& core, const std::vector<Mailbox*>& mailboxes)
      : MessageQueue(core), context_(mailboxes) {}
  Task start(const Collective& collective) override;

 private:
  ReceiveContext context_;
};

}  // namespace ctran
