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

/// Whether a rank's memory is mapped here (Unified), or reached by messages that its progress
/// thread serves (Separate).
enum class WindowAccess : uint8_t { Unified, Separate };

struct WindowOptions {
  size_t signalWords = 8;  ///< numbered words that others may set on this rank
  uint32_t tag = 0;        ///< what this rank tells the others of its memory, in their terms
  std::string name = "window";
  std::chrono::nanoseconds timeout{};  ///< of creation and of operations; 0: the communicator's
};

/// Memory that every rank exposes to the others, with signals.
///
/// Operations to one rank take effect there in the order of their calls; whoever has seen a signal
/// sees all that its sender put there before. Ranges are checked at the caller, and once more at
/// the target where it serves them. Whoever names memory that others write to at the same time gets
/// some mixture.
///
/// Operations return null when they have ended already, which is the case wherever memory is
/// mapped. An ended put, signal or flush: put and signal may reuse their source; after a flush all
/// that was put there is visible there.
///
/// One thread at a time. Errors break the window on all ranks, as those of a communicator do.
class Window {
 public:
  /// Collective over the ranks of `parent`, which has to outlive the window. `memory` is what this
  /// rank exposes, possibly nothing; it is mapped by the others if it lies in a SharedAllocation,
  /// which then lives as long as anybody's window. Other memory has to outlive the window.
  static std::unique_ptr<Window> create(Communicator& parent, std::span<std::byte> memory,
                                        const WindowOptions& options, WaitHooks* hooks = nullptr);

  virtual ~Window() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual size_t bytes(int rank) const = 0;        ///< that it exposes
  virtual size_t signalWords(int rank) const = 0;  ///< that it has
  virtual uint32_t tag(int rank) const = 0;        ///< that it gave
  virtual WindowAccess access(int rank) const = 0;
  /// That rank's memory, here; null when it is Separate. Whoever uses it longer than the window
  /// lives holds what it points into.
  virtual std::shared_ptr<std::byte> mapped(int rank) const = 0;

  using WorkPtr = std::shared_ptr<Work>;
  using Timeout = std::chrono::nanoseconds;

  /// Writes at byte `offset` of the target's memory. `keepAlive` is held until `source` is free.
  virtual WorkPtr put(int target, size_t offset, std::span<const std::byte> source,
                      Timeout timeout = {}, std::shared_ptr<void> keepAlive = nullptr) = 0;
  /// Reads from byte `offset` of the target's memory.
  virtual WorkPtr get(int target, size_t offset, std::span<std::byte> destination,
                      Timeout timeout = {}, std::shared_ptr<void> keepAlive = nullptr) = 0;
  virtual WorkPtr flush(int target, Timeout timeout = {}) = 0;

  /// Counts one signal from this rank at the target.
  virtual WorkPtr signal(int target, Timeout timeout = {}) = 0;
  /// Sets a numbered word of the target.
  virtual WorkPtr setWord(int target, size_t word, uint64_t value, Timeout timeout = {}) = 0;

  /// Waits for one more signal from `origin` than was waited for before.
  virtual WorkPtr waitSignal(int origin, Timeout timeout = {}) = 0;
  /// Waits until a numbered word of this rank compares so with `value`.
  virtual WorkPtr waitWord(size_t word, Comparison comparison, uint64_t value,
                           Timeout timeout = {}) = 0;

  /// Waits for `work`, if there is one; as Work::finish, which breaks the window when it is
  /// interrupted.
  static void finish(const WorkPtr& work, WaitHooks* hooks = nullptr) {
    if (work) Work::finish({&work, 1}, hooks);
  }

  /// Collective: when it returns nobody touches this rank's memory any more. Later operations
  /// throw. Idempotent. A window that is destroyed without it breaks where its memory was served.
  virtual void close(WaitHooks* hooks = nullptr) = 0;

  /// Ends every blocked and every later operation of all ranks. Any thread.
  virtual void abort(const std::string& reason) = 0;
};

}  // namespace ctran
