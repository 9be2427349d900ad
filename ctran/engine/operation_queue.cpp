#include "ctran/engine/operation_queue.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>

#include "ctran/base/clock.h"
#include "ctran/base/log.h"
#include "ctran/collective/signature.h"
#include "ctran/engine/operation.h"
#include "ctran/engine/report.h"
#include "ctran/engine/roll_call.h"
#include "ctran/engine/waiter.h"

namespace ctran {
namespace {

/// What this rank gets, of an exchange whose blocks differ.
uint64_t receivedBytes(const Collective& c) {
  size_t count = 0;
  if (c.kind == CollectiveKind::AllToAllV) {
    for (const Block& block : c.outputs) count += block.count;
  }
  return count * sizeOf(c.type);
}

/// What this rank contributes or, of a message, what goes.
uint64_t recordedBytes(const Collective& c, int size) {
  switch (c.kind) {
    case CollectiveKind::AllToAllV: {
      size_t count = 0;
      for (const Block& block : c.inputs) count += block.count;
      return count * sizeOf(c.type);
    }
    case CollectiveKind::AllToAllVDynamic:
    case CollectiveKind::AllToAllVCombine:
      return c.rows ? c.blockBytes() * c.rows->inputRows : 0;
    case CollectiveKind::Send:
    case CollectiveKind::Recv:
      return c.blockBytes();
    case CollectiveKind::Put:
    case CollectiveKind::Get:
      return c.count;
    case CollectiveKind::Flush:
    case CollectiveKind::Signal:
    case CollectiveKind::WaitSignal:
      return 0;
    default:
      return contributionBytes(c, size);
  }
}

constexpr int64_t kBusyNanos = 1'000'000;  // until a thread that drives now may have got stuck

}  // namespace

OperationQueue::~OperationQueue() = default;

void OperationQueue::beginTrace(const Collective& collective, uint64_t calledAt) {
  if (records_ != Records::Nothing && logs(LogComponent::Collective, LogLevel::Debug)) {
    logStart(collective);
  }
  trace(collective, calledAt);
}

void OperationQueue::trace(const Collective& collective, uint64_t calledAt) {
  if (core.recording == nullptr || records_ == Records::Nothing) return;
  trace_.begin(core.recording, records_ == Records::Messages, makeRecord(collective, 0, 0),
               recordedBytes(collective, core.size()),
               records_ == Records::Messages ? collective.tag : receivedBytes(collective),
               calledAt);
}

void OperationQueue::failTrace(ErrorKind kind) {
  trace_.failed(static_cast<int>(kind));
  hasFailed_ = true;
}

void OperationQueue::refused(const Collective& collective, ErrorKind why) {
  if (why != ErrorKind::Mismatch || hasFailed_) return;
  trace(collective, 0);
  failTrace(why);
}

void OperationQueue::logStart(const Collective& collective) {
  loggedAt_ = nowNanos();
  log(LogComponent::Collective, LogLevel::Trace, "'%s' starts %s", core.name.c_str(),
      collective.describe().c_str());
}

/// Before the record is closed: what it says is told too.
void OperationQueue::logEnd(const Collective& collective) {
  const int64_t begun = std::exchange(loggedAt_, 0);
  if (begun == 0) return;  // logged since then only
  const auto micros = static_cast<double>(nowNanos() - begun) / 1000;
  std::string text = "'" + core.name + "' " + collective.describe();
  const OperationTrace::Summary summary = trace_.summary();
  if (summary.number > 0 && records_ == Records::Collectives) {
    text += " #" + std::to_string(summary.number);
  }
  text += ": " + printedBytes(static_cast<double>(recordedBytes(collective, core.size())));
  if (summary.choice > 0) text += ", " + core.recording->algorithm(summary.choice);
  char times[96];
  snprintf(times, sizeof times, ", %.1f us", micros);
  text += times;
  if (summary.waited > 0) {
    snprintf(times, sizeof times, ", of which %.0f %% waiting, longest for ", 100 * summary.waited);
    text += times +
            (summary.longestFor < 0 ? "any rank" : "rank " + std::to_string(summary.longestFor));
  }
  logText(LogComponent::Collective, LogLevel::Debug, text);
}

void OperationQueue::countQueued(int64_t change) {
  if (core.recording != nullptr && records_ == Records::Collectives) {
    core.recording->queued(change);
  }
}

void OperationQueue::run(const Collective& collective, int64_t timeoutNanos, WaitHooks* hooks) {
  beginTrace(collective, 0);
  try {
    std::optional<Waiter> waiter;  // before the task, whose end after a failure may be waited for
    Task task = start(collective);
    if (!task.done()) {
      waiter.emplace(core, hooks);
      int64_t deadline = 0;  // counted from the first look that read the clock
      while (!task.done()) {
        if (task.advance()) {
          if (!task.done()) trace_.moved();
          continue;
        }
        const int awaited = task.waiting().awaited();
        trace_.waits(awaited);
        waiter->pause(
            awaited,
            [&] {
              return task.waiting().stillWaitsFor(awaited) && !core.isHopeless(task.waiting());
            },
            [&](int64_t now) {
              if (deadline == 0) deadline = now + timeoutNanos;
              return checkWait(collective, task.waiting(), deadline, timeoutNanos, now);
            });
      }
    }
    task.get();
    ended();
    if (logs(LogComponent::Collective, LogLevel::Debug)) logEnd(collective);
    trace_.ended();
  } catch (const Error& error) {
    const Error first = core.fail(error);
    failTrace(first.kind());
    throw first;
  } catch (const std::bad_alloc&) {
    failTrace(ErrorKind::System);
    throw core.failCaught(collective.describe());
  } catch (const std::logic_error&) {  // of the library: a length beyond all limits
    failTrace(ErrorKind::System);
    throw core.failCaught(collective.describe());
  } catch (...) {
    failTrace(ErrorKind::Aborted);
    const Blocking blocking(hooks);
    core.fail(core.interruptedError(collective.describe()));
    throw;
  }
}

/// Returns when to look again.
int64_t OperationQueue::checkWait(const Collective& collective, const Condition& waiting,
                                  int64_t deadline, int64_t timeoutNanos, int64_t now) {
  checkPeers();
  Condition condition = waiting;
  if (condition.holds()) return deadline;
  if (const int gone = core.goneRank(condition); gone >= 0) throw core.leftError(gone);
  if (now < deadline) return deadline;
  const int64_t end = deadline + graceNanos(condition);
  if (now >= end) throw timeoutError(collective, condition, timeoutNanos);
  return end;
}

void OperationQueue::push(std::shared_ptr<Operation> operation) {
  std::lock_guard lock(queueMutex_);
  const int64_t deadline = operation->deadlineNanos();
  queue_.push_back({std::move(operation), deadline});
  // Among the operations before it, only those with a later deadline: none, if all have one
  // timeout.
  for (auto before = std::next(queue_.rbegin());
       before != queue_.rend() && before->earliestDeadline > deadline; ++before) {
    before->earliestDeadline = deadline;
  }
  countQueued(1);
  pending_.fetch_add(1, std::memory_order_release);
}

std::shared_ptr<Operation> OperationQueue::head() {
  std::lock_guard lock(queueMutex_);
  return queue_.empty() ? nullptr : queue_.front().operation;
}

void OperationQueue::pop() {
  std::lock_guard lock(queueMutex_);
  queue_.pop_front();
  ended_.fetch_add(1, std::memory_order_release);
}

Condition OperationQueue::ended(int tag) {
  std::lock_guard lock(queueMutex_);
  for (size_t count = queue_.size(); count > 0; --count) {  // the last one is of that tag, mostly
    if (queue_[count - 1].operation->collective().tag != tag) continue;
    return Condition::ofAnybody(ended_, ended_.load(std::memory_order_relaxed) + count);
  }
  return {};
}

bool OperationQueue::advance() {
  bool moved = false;
  while (true) {
    std::shared_ptr<Operation> started;
    std::shared_ptr<Operation> ended;
    {
      std::unique_lock driving(driving_, std::try_to_lock);
      if (!driving) return moved;
      ended = step(moved, started);
    }
    if (started) started->tellStarted();
    if (!ended) return moved;
    ended->tell();
    if (idle()) return moved;  // a thread that queues something looks after it
  }
}

/// With `driving_` held: goes on with the head of the queue; returns it if it has ended. Sets
/// `started` to it if it has started and not ended.
std::shared_ptr<Operation> OperationQueue::step(bool& moved, std::shared_ptr<Operation>& started) {
  std::shared_ptr<Operation> operation = head();
  if (!operation) return nullptr;
  std::optional<Error> error;
  try {
    core.throwIfFailed();
    if (!task_) {
      operation->markRunning();
      beginTrace(operation->collective(), operation->calledAt());
      countQueued(-1);
      task_ = start(operation->collective());
      moved = true;
      if (!task_.done()) {
        trace_.waits(task_.waiting().awaited());
        started = std::move(operation);
        return nullptr;
      }
    } else {
      const bool now = task_.advance();
      if (now && !task_.done()) trace_.moved();
      moved |= now;
    }
    if (!task_.done()) {
      trace_.waits(task_.waiting().awaited());
      return nullptr;
    }
    task_.get();
    ended();
    if (logs(LogComponent::Collective, LogLevel::Debug)) logEnd(operation->collective());
    trace_.ended();
  } catch (...) {
    error = core.failCaught(operation->collective().describe());
    if (operation->state() == WorkState::Queued) {
      countQueued(-1);
      refused(operation->collective(), error->kind());
    } else {
      failTrace(error->kind());
    }
  }
  moved = true;
  task_.reset();
  pop();
  operation->finish(std::move(error));
  pending_.fetch_sub(1, std::memory_order_release);  // `run` may use what was used here
  return operation;
}

int OperationQueue::awaited() {
  std::unique_lock driving(driving_, std::try_to_lock);
  return driving && task_ ? task_.waiting().awaited() : -1;
}

bool OperationQueue::stillWaitsFor(int rank) {
  std::lock_guard driving(driving_);
  return waitsFor(rank);
}

bool OperationQueue::stillWaitsForIfFree(int rank) {
  std::unique_lock driving(driving_, std::try_to_lock);
  return driving && waitsFor(rank);
}

/// With `driving_` held.
bool OperationQueue::waitsFor(int rank) {
  if (core.failed() || !task_) return idle();
  Condition condition = task_.waiting();
  if (condition.holds() || core.isHopeless(condition)) return false;
  return rank < 0 || condition.awaited() == rank;
}

int64_t OperationQueue::checkStuck(int64_t now) {
  std::unique_lock driving(driving_, std::try_to_lock);
  if (!driving) return now + kBusyNanos;
  const std::shared_ptr<Operation> operation = head();
  if (!operation || !task_) return INT64_MAX;
  int64_t deadline;
  {
    // The head's, or that of one behind it, which waits for the same rank.
    std::lock_guard lock(queueMutex_);
    deadline = queue_.front().earliestDeadline;
  }
  try {
    return checkWait(operation->collective(), task_.waiting(), deadline, operation->timeoutNanos(),
                     now);
  } catch (...) {
    core.failCaught(operation->collective().describe());
    return now;
  }
}

void MessageQueue::begin(const Collective& collective) {
  record_ = core.beginMessage(makeRecord(collective, 0, 0));
}

Error MessageQueue::timeoutError(const Collective& collective, const Condition&,
                                 int64_t timeoutNanos) {
  return channelTimeout(core, collective, timeoutNanos);
}

Task ShmSendQueue::start(const Collective& collective) {
  begin(collective);
  return sendShm(channel_, collective);
}

Task ReceiveQueue::start(const Collective& collective) {
  begin(collective);
  return receive(context_, collective);
}

}  // namespace ctran
