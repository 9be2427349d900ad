#pragma once

#include <cstdint>

namespace ctran {

/// While it lives, this thread does for a call what a later one of its kind need not do again: it
/// compiles or loads a kernel, registers memory, or maps that of a peer. One inside of another
/// counts once.
class Preparation {
 public:
  Preparation();
  ~Preparation();
  Preparation(const Preparation&) = delete;
  Preparation& operator=(const Preparation&) = delete;

  /// The ticks for which this thread has prepared since it was asked the last time.
  static uint64_t take();

 private:
  uint64_t since_ = 0;  ///< 0: inside of another one
};

/// The word `choice` of a record: the choice in its lower half, and in the upper one for how long
/// the call has prepared, in units of 1024 ticks.
inline constexpr int kPreparedShift = 32;
inline constexpr int kPreparedUnit = 10;

}  // namespace ctran
