#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ctran/engine/communicator.h"

namespace ctran {

/// How a word is compared with the value that is waited for: "word <comparison> value".
enum class Comparison : uint8_t { Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual };

std::string_view nameOf(Comparison comparison);
bool compare(uint64_t word, Comparison comparison, uint64_t value);

/// How a rank's memory is reached: it is mapped here (Unified), or reached by messages that the
/// rank's progress thread serves (Separate).
enum class WindowAccess : uint8_t { Unified, Separate };

struct WindowOptions {
  size_t signalWords = 8;  ///< number of words that others may set on this rank
  /// A number that this rank tells the others with its memory; they give it a meaning.
  uint32_t tag = 0;
  std::string name = "window";
  std::chrono::nanoseconds timeout{};  ///< of creation and of operations; 0: the communicator's
};

/// A window is memory that every rank exposes to the others, with signals.
///
/// Operations to one rank take effect there in the order of their calls; whoever has seen a signal
/// sees all that its sender put there before. Ranges are checked at the caller, and again at the
/// target where it serves them. An operation on memory that others write to at the same time
/// results in a mixture.
///
/// An operation returns null when it has already ended, which is always so where memory is mapped.
/// When a put or a signal has ended, its source may be reused; when a flush has ended, all that was
/// put there is visible there.
///
/// One thread at a time uses a window. Errors break the window on all ranks, as those of a
/// communicator do.
class Window {
 public:
  /// Creates the window. Collective over the ranks of `parent`, which has to outlive the window.
  /// `memory` is what this rank exposes, possibly nothing. If it lies in a SharedAllocation, the
  /// others map it, and the allocation lives as long as the window of any rank. Other memory has to
  /// outlive the window.
  static std::unique_ptr<Window> create(Communicator& parent, std::span<std::byte> memory,
                                        const WindowOptions& options, WaitHooks* hooks = nullptr);

  virtual ~Window() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual size_t bytes(int rank) const = 0;        ///< number of bytes that this rank exposes
  virtual size_t signalWords(int rank) const = 0;  ///< number of words that this rank has
  virtual uint32_t tag(int rank) const = 0;        ///< the number that this rank gave
  virtual WindowAccess access(int rank) const = 0;
  /// Returns the memory of a rank, mapped here; null if it is Separate. A caller that uses it
  /// longer than the window lives has to hold it.
  virtual std::shared_ptr<std::byte> mapped(int rank) const = 0;

  using WorkPtr = std::shared_ptr<Work>;
  using Timeout = std::chrono::nanoseconds;

  /// Writes at byte `offset` of the target's memory. `keepAlive` is held until `source` may be
  /// reused.
  virtual WorkPtr put(int target, size_t offset, std::span<const std::byte> source,
                      Timeout timeout = {}, std::shared_ptr<void> keepAlive = nullptr) = 0;
  /// Reads from byte `offset` of the target's memory.
  virtual WorkPtr get(int target, size_t offset, std::span<std::byte> destination,
                      Timeout timeout = {}, std::shared_ptr<void> keepAlive = nullptr) = 0;
  virtual WorkPtr flush(int target, Timeout timeout = {}) = 0;

  /// Adds one signal from this rank to the count at the target.
  virtual WorkPtr signal(int target, Timeout timeout = {}) = 0;
  /// Sets a numbered word of the target.
  virtual WorkPtr setWord(int target, size_t word, uint64_t value, Timeout timeout = {}) = 0;

  /// Waits for one more signal from `origin` than earlier calls have waited for.
  virtual WorkPtr waitSignal(int origin, Timeout timeout = {}) = 0;
  /// Waits until the comparison of a numbered word of this rank with `value` holds.
  virtual WorkPtr waitWord(size_t word, Comparison comparison, uint64_t value,
                           Timeout timeout = {}) = 0;

  /// Waits for `work` unless it is null, as Work::finish does; an interruption breaks the window.
  static void finish(const WorkPtr& work, WaitHooks* hooks = nullptr) {
    if (work) Work::finish({&work, 1}, hooks);
  }

  /// Closes the window. Collective: when it returns, no rank touches this rank's memory any more.
  /// Later operations throw. Idempotent. If a window is destroyed without it, and its memory was
  /// served, the window breaks.
  virtual void close(WaitHooks* hooks = nullptr) = 0;

  /// Ends every blocked and every later operation of all ranks. Safe from any thread.
  virtual void abort(const std::string& reason) = 0;
};

}  // namespace ctran
