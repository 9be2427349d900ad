#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ctran/trace/recording.h"

namespace ctran {

/// Writes a record of each replay of a captured operation. The engine makes it as it captures the
/// operation, and tells it of replays. Who records the call takes it, and says where and what to
/// write.
class ReplayTrace {
 public:
  /// A call that is part of the operation: several messages may be one operation.
  struct Call {
    bool isMessage = false;
    uint64_t number = 0;  ///< position in its ring
    uint64_t what = 0, count = 0, bytes = 0;
    uint32_t choice = 0;  ///< see Recording::choice
  };

  /// Makes that of an operation which this thread captures.
  static std::shared_ptr<ReplayTrace> make();
  /// Returns what this thread has made since it was asked the last time, if anything.
  static std::shared_ptr<ReplayTrace> take();

  void write(std::shared_ptr<Recording> recording, std::vector<Call> calls);

  // One thread at a time for all operations that write to one recording. Times are in ticks.

  void began(uint64_t at);
  /// Writes a record, too, of an operation whose beginning nobody has seen; it was after `since`.
  void ended(uint64_t since, uint64_t at);

 private:
  void begin(uint64_t at);

  std::mutex mutex_;
  std::shared_ptr<Recording> recording_;
  std::vector<Call> calls_;
  bool runs_ = false;
  std::vector<uint64_t> running_;  ///< positions of the records of the replay that runs
};

}  // namespace ctran
