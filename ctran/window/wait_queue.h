#pragma once

#include <deque>
#include <mutex>
#include <string>

#include "ctran/engine/operation_queue.h"
#include "ctran/window/window.h"
#include "ctran/window/window_signals.h"

namespace ctran {

/// What one wait of a window waits for: a counter that reaches `condition`, or a word of the board.
struct WindowWait {
  Condition condition;
  std::string what;  ///< "a signal from rank 2", for people
  std::optional<size_t> word = {};
  Comparison comparison = Comparison::Equal;
  uint64_t value = 0;
};

/// The queue of a window's waits, which run one after the other.
class WaitQueue final : public OperationQueue {
 public:
  WaitQueue(Core& core, WindowSignals& board)
      : OperationQueue(core), context_{{}, board, core.rank()} {}

  /// Sets what the next operation of this queue, which is a WaitSignal, waits for.
  void expect(WindowWait wait);

  Task start(const Collective& collective) override;
  void ended() override {}
  Error timeoutError(const Collective& collective, const Condition& waiting,
                     int64_t timeoutNanos) override;

  struct Context {
    FrameMemory frame;
    WindowSignals& board;
    int rank;
    WindowWait wait = {};
  };

 private:
  Context context_;
  std::mutex mutex_;
  std::deque<WindowWait> expected_;
};

}  // namespace ctran
