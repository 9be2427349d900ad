#pragma once

#include <atomic>
#include <chrono>
#include <comms/torchcomms/TorchCommTypes.hpp>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ctran/gpu/runtime.h"

namespace torch::comms::stream {

/// Knows which captured operations of a communicator run, whenever their graphs are replayed: the
/// host is not asked when one is.
///
/// Behind each operation its graph records an event, which is not ready from the launch of a replay
/// until that replay has come there. But a program may launch the next replay before the last one
/// has ended, and then no event is ever ready. So before its first operation a graph writes
/// `kBegun` to a word in memory of the host; who finds that there writes `kSeen`, in one atomic
/// exchange. As long as that stays, no other replay has begun. Costs of a replay on H200: 3.3 us
/// for the word, 0.4 us for each event.
class Replays {
 public:
  using Clock = std::chrono::steady_clock;

  /// The operations of one graph. Whoever keeps the graph's tensors keeps it.
  class Captured;
  struct Running {
    OpName op;
    uint64_t sequence;
    std::chrono::milliseconds timeout;
    Clock::time_point since;

    Clock::time_point deadline() const { return since + timeout; }
  };

  Replays(const ctran::gpu::Runtime& runtime, std::shared_ptr<ctran::gpu::EventPool> events)
      : runtime_(runtime), events_(std::move(events)) {}
  ~Replays();
  Replays(const Replays&) = delete;
  Replays& operator=(const Replays&) = delete;

  /// An operation is about to be captured on `stream`. Null if this driver cannot tell when it
  /// runs.
  std::shared_ptr<Captured> enter(ctran::gpu::Stream stream);
  /// It has been captured.
  void leave(Captured& graph, ctran::gpu::Stream stream, OpName op, uint64_t sequence,
             std::chrono::milliseconds timeout);

  /// Looks at all graphs. The first operation that has not ended of the graph whose time is over
  /// first, if any runs.
  std::optional<Running> mostUrgent(Clock::time_point now);

 private:
  using Word = std::atomic<uint32_t>;

  Word* takeWord();
  void giveWord(Word* word);

  const ctran::gpu::Runtime& runtime_;
  const std::shared_ptr<ctran::gpu::EventPool> events_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Captured>> graphs_;
  std::mutex wordsMutex_;  ///< of its own: any thread may be the last to know a graph
  std::vector<void*> pages_;
  std::vector<Word*> words_;  ///< that no graph writes
};

}  // namespace torch::comms::stream
