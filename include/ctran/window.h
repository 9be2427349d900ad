#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ctran/communicator.h"

namespace ctran {

class Window;  // the engine's own class

namespace api {

/// How a word is compared with the value that is waited for: "word <comparison> value".
enum class Comparison : uint8_t { Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual };

struct WindowOptions {
  size_t signalWords = 8;  ///< number of words that others may set on this rank
  std::string name = "window";
  std::chrono::nanoseconds timeout{};  ///< of creation and of operations; 0: the communicator's
};

/// Allocates memory of the host that the ranks of one host can map. It is filled with zeros.
CTRAN_API std::shared_ptr<std::byte> allocateShared(size_t bytes);

/// The file behind memory of allocateShared. A process that has its descriptor can map it.
struct SharedFile {
  int descriptor = -1;  ///< open as long as the memory lives; -1: the memory is of another kind
  size_t bytes = 0;     ///< of the file
  size_t offset = 0;    ///< of the memory in it
};
/// Returns the file that holds all of [data, data + bytes).
CTRAN_API SharedFile sharedFileOf(const void* data, size_t bytes);
/// Maps such a file; its descriptor may be closed afterwards. Throws Error(System) if it is no such
/// file, or has another size. Within one process all callers get the same address.
CTRAN_API std::shared_ptr<std::byte> mapShared(int descriptor, size_t bytes);

/// A window is memory that every rank exposes to the others, with signals.
///
/// Operations to one rank take effect there in the order of their calls; whoever has seen a signal
/// sees all that its sender put there before. An operation that has already ended returns null. The
/// source of an ended put or signal may be reused; after a flush all that was put there is visible
/// there. One thread at a time uses a window.
class CTRAN_API Window final {
 public:
  /// Creates the window. Collective over the ranks of `parent`, which has to outlive the window.
  /// `memory` is what this rank exposes, possibly nothing; others map it if it comes from
  /// allocateShared. It has to outlive the window.
  static std::unique_ptr<Window> create(Communicator& parent, std::span<std::byte> memory,
                                        const WindowOptions& options = {},
                                        WaitHooks* hooks = nullptr);
  explicit Window(std::unique_ptr<ctran::Window> engine);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  int rank() const;
  int size() const;
  size_t bytes(int rank) const;  ///< number of bytes that this rank exposes
  /// Returns the memory of a rank, mapped here; null if it is reached by messages.
  std::shared_ptr<std::byte> mapped(int rank) const;

  using WorkPtr = std::shared_ptr<Work>;
  using Timeout = std::chrono::nanoseconds;

  /// Writes at byte `offset` of the target's memory.
  WorkPtr put(int target, size_t offset, std::span<const std::byte> source, Timeout timeout = {});
  /// Reads from byte `offset` of the target's memory.
  WorkPtr get(int target, size_t offset, std::span<std::byte> destination, Timeout timeout = {});
  WorkPtr flush(int target, Timeout timeout = {});
  /// Adds one signal from this rank to the count at the target.
  WorkPtr signal(int target, Timeout timeout = {});
  /// Waits for one more signal from `origin` than earlier calls have waited for.
  WorkPtr waitSignal(int origin, Timeout timeout = {});
  /// Sets a numbered word of the target.
  WorkPtr setWord(int target, size_t word, uint64_t value, Timeout timeout = {});
  /// Waits until the comparison of a numbered word of this rank with `value` holds.
  WorkPtr waitWord(size_t word, Comparison comparison, uint64_t value, Timeout timeout = {});
  /// Waits for `work` unless it is null.
  static void finish(const WorkPtr& work, WaitHooks* hooks = nullptr);

  /// Closes the window. Collective: when it returns, no rank touches this rank's memory any more.
  /// Idempotent.
  void close(WaitHooks* hooks = nullptr);
  /// Ends every blocked and every later operation of all ranks. Safe from any thread.
  void abort(const std::string& reason);

 private:
  const std::unique_ptr<ctran::Window> engine_;
};

}  // namespace api
}  // namespace ctran
