#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ctran/communicator.h"

namespace ctran {

class Window;  // of the engine

namespace api {

/// How a word is compared with the value that is waited for: "word <comparison> value".
enum class Comparison : uint8_t { Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual };

struct WindowOptions {
  size_t signalWords = 8;  ///< numbered words that others may set on this rank
  std::string name = "window";
  std::chrono::nanoseconds timeout{};  ///< of creation and of operations; 0: the communicator's
};

/// Memory of the host that the ranks of one host map. Zeros at first.
CTRAN_API std::shared_ptr<std::byte> allocateShared(size_t bytes);

/// The file behind memory of allocateShared, which whoever has its descriptor can map.
struct SharedFile {
  int descriptor = -1;  ///< as long as the memory lives; -1: the memory is of another kind
  size_t bytes = 0;     ///< of the file
  size_t offset = 0;    ///< of the memory in it
};
/// The one that holds all of [data, data + bytes).
CTRAN_API SharedFile sharedFileOf(const void* data, size_t bytes);
/// Maps such a file, whose descriptor may then be closed. Throws Error(System) if it is no such
/// file, or has another size. Within one process all get the same address.
CTRAN_API std::shared_ptr<std::byte> mapShared(int descriptor, size_t bytes);

/// Memory that every rank exposes to the others, with signals.
///
/// Operations to one rank take effect there in the order of their calls; whoever has seen a signal
/// sees all that its sender put there before. They return null when they have ended already. An
/// ended put or signal may reuse its source; after a flush all that was put there is visible there.
/// One thread at a time.
class CTRAN_API Window final {
 public:
  /// Collective over the ranks of `parent`, which has to outlive the window. `memory` is what this
  /// rank exposes, possibly nothing; others map it where it comes from allocateShared. It has to
  /// outlive the window.
  static std::unique_ptr<Window> create(Communicator& parent, std::span<std::byte> memory,
                                        const WindowOptions& options = {},
                                        WaitHooks* hooks = nullptr);
  explicit Window(std::unique_ptr<ctran::Window> engine);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  int rank() const;
  int size() const;
  size_t bytes(int rank) const;  ///< that it exposes
  /// That rank's memory, here; null when it is reached by messages.
  std::shared_ptr<std::byte> mapped(int rank) const;

  using WorkPtr = std::shared_ptr<Work>;
  using Timeout = std::chrono::nanoseconds;

  /// Writes at byte `offset` of the target's memory.
  WorkPtr put(int target, size_t offset, std::span<const std::byte> source, Timeout timeout = {});
  /// Reads from byte `offset` of the target's memory.
  WorkPtr get(int target, size_t offset, std::span<std::byte> destination, Timeout timeout = {});
  WorkPtr flush(int target, Timeout timeout = {});
  /// Counts one signal from this rank at the target.
  WorkPtr signal(int target, Timeout timeout = {});
  /// Waits for one more signal from `origin` than was waited for before.
  WorkPtr waitSignal(int origin, Timeout timeout = {});
  /// Sets a numbered word of the target.
  WorkPtr setWord(int target, size_t word, uint64_t value, Timeout timeout = {});
  /// Waits until a numbered word of this rank compares so with `value`.
  WorkPtr waitWord(size_t word, Comparison comparison, uint64_t value, Timeout timeout = {});
  /// Waits for `work`, if there is one.
  static void finish(const WorkPtr& work, WaitHooks* hooks = nullptr);

  /// Collective: when it returns nobody touches this rank's memory any more. Idempotent.
  void close(WaitHooks* hooks = nullptr);
  /// Ends every blocked and every later operation of all ranks. Any thread.
  void abort(const std::string& reason);

 private:
  const std::unique_ptr<ctran::Window> engine_;
};

}  // namespace api
}  // namespace ctran
