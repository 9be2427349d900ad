#include "ctran/base/log.h"

#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "ctran/base/config.h"
#include "ctran/base/error.h"

namespace ctran {

namespace {

const ConfigChoice kLog{"CTRAN_LOG", "error|warn|info|debug", "warn",
                        "Print messages of this level and of those before it to stderr."};

constexpr const char* kLevelNames[] = {"error", "warn", "info", "debug"};

std::atomic<int> gRank{-1};

[[gnu::format(printf, 2, 0)]] void write(LogLevel level, const char* format, va_list args) {
  char line[1200];
  timeval now;
  gettimeofday(&now, nullptr);
  tm local;
  localtime_r(&now.tv_sec, &local);
  size_t used = strftime(line, sizeof line, "%H:%M:%S", &local);
  // One byte of the buffer stays free for the line's end.
  const auto append = [&](int printed) {
    used = std::min(used + static_cast<size_t>(std::max(printed, 0)), sizeof line - 2);
  };
  const auto room = [&] { return sizeof line - 1 - used; };
  append(snprintf(line + used, room(), ".%06ld ctran[%d] ", static_cast<long>(now.tv_usec),
                  static_cast<int>(getpid())));
  const int rank = gRank.load(std::memory_order_relaxed);
  if (rank >= 0) append(snprintf(line + used, room(), "rank %d ", rank));
  append(snprintf(line + used, room(), "%s: ", kLevelNames[static_cast<size_t>(level)]));
  append(vsnprintf(line + used, room(), format, args));
  line[used++] = '\n';
  // A log that cannot be written is no reason to fail.
  ssize_t written;
  do {
    written = ::write(STDERR_FILENO, line, used);
  } while (written < 0 && errno == EINTR);
}

[[gnu::format(printf, 2, 3)]] void writeNow(LogLevel level, const char* format, ...) {
  va_list args;
  va_start(args, format);
  write(level, format, args);
  va_end(args);
}

// A bad CTRAN_LOG must not turn the first message into an exception.
LogLevel readThreshold() {
  try {
    return static_cast<LogLevel>(kLog.index());
  } catch (const Error& error) {
    writeNow(LogLevel::Warn, "%s", error.what());
    return LogLevel::Warn;
  }
}

}  // namespace

bool logs(LogLevel level) {
  static const LogLevel threshold = readThreshold();
  return level <= threshold;
}

void log(LogLevel level, const char* format, ...) {
  if (!logs(level)) return;
  const int savedErrno = errno;
  va_list args;
  va_start(args, format);
  write(level, format, args);
  va_end(args);
  errno = savedErrno;
}

void setLogRank(int rank) { gRank.store(rank, std::memory_order_relaxed); }

}  // namespace ctran
