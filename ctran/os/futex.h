#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>

namespace ctran {

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);

/// Sleeps while `word` holds `expected`, at most `limit`. Returns early on a wake, a signal or for
/// no reason: callers look again. Works across processes that share the word's memory. True if a
/// signal was handled meanwhile.
inline bool futexWait(const std::atomic<uint32_t>& word, uint32_t expected,
                      std::chrono::nanoseconds limit) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec timeout{static_cast<time_t>(seconds.count()),
                         static_cast<long>((limit - seconds).count())};
  return ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0) != 0 &&
         errno == EINTR;
}

/// Wakes everybody who sleeps on `word`.
inline void futexWake(const std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace ctran
