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

/// Knows which captured operations of a communicator run in replays of their graphs. The host is
/// not asked when a graph is launched, so the graph itself has to tell.
///
/// Behind each operation the graph records an event. From the launch of a replay until the replay
/// has come there, the event is not ready. But if a program launches each replay before the last
/// one has ended, no event is ever ready, however fast they are. So before its first operation the
/// graph writes `kBegun` to a word in host memory; the watchdog, when it finds `kBegun`, exchanges
/// it for `kSeen` in one atomic operation. While the word stays `kSeen` no other replay has begun,
/// and the one that runs is as old as that. On H200 a replay takes 3.3 us longer for the word and
/// 0.4 us for each event.
class Replays {
 public:
  using Clock = std::chrono::steady_clock;

  /// The captured operations of one graph. Who keeps the graph's buffers alive owns it.
  class Captured;
  /// An operation that runs in a replay.
  struct Running {
    std::string_view name;
    uint64_t sequence;
    std::chrono::milliseconds timeout;
    Clock::time_point since;  ///< of the replay

    Clock::time_point deadline() const { return since + timeout; }
  };

  Replays(const gpu::Runtime& runtime, int device, std::shared_ptr<gpu::EventPool> events)
      : runtime_(runtime), device_(device), events_(std::move(events)) {}
  ~Replays();
  Replays(const Replays&) = delete;
  Replays& operator=(const Replays&) = delete;

  /// Called before an operation is captured on `stream`. Null if this driver cannot tell when
  /// captured operations run.
  std::shared_ptr<Captured> enter(gpu::Stream stream);
  /// Called after it has been captured. `name` is text that lives as long as the process.
  void leave(Captured& graph, gpu::Stream stream, std::string_view name, uint64_t sequence,
             std::chrono::milliseconds timeout);

  /// Of all graphs that are replayed now, the one whose deadline is the earliest: its first
  /// operation that has not ended.
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
  std::mutex wordsMutex_;  ///< a second one: the last owner of a graph may hold the first
  std::vector<void*> pages_;
  std::vector<Word*> words_;  ///< those that no graph writes
};

}  // namespace ctran
