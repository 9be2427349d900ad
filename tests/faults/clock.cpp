// The time of day as everything in this process sees it, also inside libctran and the C++ library:
// these symbols of the program stand before those of libc. The real clock of the machine stays as
// it is, and so does the monotonic one.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "tests/faults/rank.h"

namespace ctran::testing {
namespace {

const std::atomic<int64_t>* gShift = nullptr;

int64_t shift() { return gShift == nullptr ? 0 : gShift->load(std::memory_order_relaxed); }

using ClockGetTime = int (*)(clockid_t, timespec*);

ClockGetTime original() {
  static const auto found = reinterpret_cast<ClockGetTime>(::dlsym(RTLD_NEXT, "clock_gettime"));
  return found;
}

}  // namespace

void shiftTimeOfDay(const std::atomic<int64_t>* seconds) { gShift = seconds; }

}  // namespace ctran::testing

extern "C" {

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto libc = ctran::testing::original();
  const int result = libc != nullptr ? libc(clock, now)
                                     : static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    now->tv_sec += ctran::testing::shift();
  }
  return result;
}

__attribute__((visibility("default"))) int gettimeofday(timeval* __restrict now,
                                                        void* __restrict) noexcept {
  timespec precise{};
  const int result = clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return result;
}

__attribute__((visibility("default"))) time_t time(time_t* now) noexcept {
  timespec precise{};
  clock_gettime(CLOCK_REALTIME, &precise);
  if (now != nullptr) *now = precise.tv_sec;
  return precise.tv_sec;
}

}  // extern "C"
