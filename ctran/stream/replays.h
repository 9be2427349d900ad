#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "ctran/gpu/runtime.h"

namespace ctran {

/// Knows which captured operations of a communicator run in replays of their graphs. The launch of
/// a graph makes no call of ours, so the graph itself has to tell.
///
/// The graph records an event behind each operation. From the launch of a replay until the replay
/// has come to that point, the event is not ready. But if a program launches each replay before the
/// last one has ended, no event is ever ready, however fast the replays are. So before its first
/// operation the graph writes `kBegun` to a word in host memory; when the watchdog finds `kBegun`,
/// it exchanges it for `kSeen` in one atomic operation. While the word stays `kSeen` no other
/// replay has begun, and the running one is at least as old as that. On H200 a replay takes 3.3 us
/// longer for the word and 0.4 us for each event.
///
/// Each look also writes the records of what has run since the last one (trace/replay_trace.h). A
/// replay that nobody has seen running has the times of these two looks, and of several such
/// replays there is one record. A replay is recorded from its first operation on. If it has ended
/// and the next one is launched and has not begun, it still counts as running.
class Replays {
 public:
  using Clock = std::chrono::steady_clock;

  /// The captured operations of one graph. The owner of the graph's buffers owns it.
  class Captured;
  /// An operation that runs in a replay.
  struct Running {
    std::string_view name;
    uint64_t sequence;
    std::chrono::milliseconds timeout;
    Clock::time_point since;  ///< when the replay was seen

    Clock::time_point deadline() const { return since + timeout; }
  };

  /// Returns whether CTRAN_TRACE_GRAPHS says that what is captured is to be recorded as it runs.
  static bool areRecorded();

  Replays(const gpu::Runtime& runtime, int device, std::shared_ptr<gpu::EventPool> events)
      : runtime_(runtime), device_(device), events_(std::move(events)) {}
  ~Replays();
  Replays(const Replays&) = delete;
  Replays& operator=(const Replays&) = delete;

  /// Is called before an operation is captured on `stream`. Returns null if this driver cannot tell
  /// when captured operations run.
  std::shared_ptr<Captured> enter(gpu::Stream stream);
  /// Is called after the operation has been captured. `name` is text that lives as long as the
  /// process. Without a `timeout` (0) the operation has no deadline. Makes its ReplayTrace.
  void leave(Captured& graph, gpu::Stream stream, std::string_view name, uint64_t sequence,
             std::chrono::milliseconds timeout);

  /// Looks at all graphs. Returns, among those that run now, the one with the earliest deadline:
  /// its first operation that has one and has not ended.
  std::optional<Running> mostUrgent(Clock::time_point now);

 private:
  using Word = std::atomic<uint32_t>;

  Word* takeWord();
  void giveWord(Word* word);

  const gpu::Runtime& runtime_;
  const int device_;
  const std::shared_ptr<gpu::EventPool> events_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Captured>> graphs_;
  std::mutex wordsMutex_;  ///< a second mutex, because the last owner of a graph may hold the first
  std::vector<void*> pages_;
  std::vector<Word*> words_;  ///< words that no graph writes
};

}  // namespace ctran
