#include "ctran/window/wait_queue.h"

#include "ctran/engine/roll_call.h"

namespace ctran {
namespace {

Task waitForCounter(WaitQueue::Context& context) { co_await context.wait.condition; }

/// Looks at the word whenever anything arrives.
Task waitForWord(WaitQueue::Context& context) {
  const WindowWait& wait = context.wait;
  WindowSignals& board = context.board;
  const std::atomic<uint64_t>& arrivals = board.arrivals(context.rank);
  while (true) {
    const uint64_t seen = arrivals.load(std::memory_order_acquire);
    const uint64_t word = board.word(context.rank, *wait.word).load(std::memory_order_acquire);
    if (compare(word, wait.comparison, wait.value)) co_return;
    co_await Condition::ofAnybody(arrivals, seen + 1);
  }
}

}  // namespace

void WaitQueue::expect(WindowWait wait) {
  std::lock_guard lock(mutex_);
  expected_.push_back(std::move(wait));
}

Task WaitQueue::start(const Collective&) {
  {
    std::lock_guard lock(mutex_);
    context_.wait = std::move(expected_.front());
    expected_.pop_front();
  }
  return context_.wait.word ? waitForWord(context_) : waitForCounter(context_);
}

Error WaitQueue::timeoutError(const Collective& collective, const Condition& waiting,
                              int64_t timeoutNanos) {
  return waitTimeout(core, collective, context_.wait.what, waiting.rank, timeoutNanos);
}

}  // namespace ctran
