#pragma once

#include <deque>
#include <mutex>
#include <string>

#include "ctran/engine/lane.h"
#include "ctran/window/board.h"
#include "ctran/window/window.h"

namespace ctran {

/// What one wait of a window waits for: a counter that reaches `condition`, or a word of the board.
struct WindowWait {
  Condition condition;
  std::string what;  ///< "a signal from rank 2", for people
  std::optional<size_t> word = {};
  Comparison comparison = Comparison::Equal;
  uint64_t value = 0;
};

/// Waits of a window, one after the other.
class WaitLane final : public Lane {
 public:
  WaitLane(Core& core, Board& board) : Lane(core), context_{{}, board, core.rank()} {}

  /// What the next operation of this lane, which is a WaitSignal, waits for.
  void expect(WindowWait wait);

  Task start(const Collective& collective) override;
  void ended() override {}
  Error timeoutError(const Collective& collective, const Condition& waiting,
                     int64_t timeoutNanos) override;

  struct Context {
    FrameMemory frame;
    Board& board;
    int rank;
    WindowWait wait = {};
  };

 private:
  Context context_;
  std::mutex mutex_;
  std::deque<WindowWait> expected_;
};

}  // namespace ctran
