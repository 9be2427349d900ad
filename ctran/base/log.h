#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ctran {

/// Error: something failed that no exception reports. Warn: it works, but not as the user would
/// want. Info: once per communicator or process. Debug: once per operation or connection. Trace:
/// more often. A failure that is thrown is not logged as well.
enum class LogLevel : uint8_t { Error, Warn, Info, Debug, Trace };
inline constexpr const char* kLogLevels[] = {"error", "warn", "info", "debug", "trace"};

/// The part of the library that logs a message. Each has a level of its own (TORCHCOMM_LOG).
enum class LogComponent : uint8_t {
  Config,
  Engine,
  Bootstrap,
  Transport,
  Collective,  ///< operations: one line each at debug
  Select,
  Memory,
  Gpu,
  Torch,
  Program,  ///< the program that uses the library (comms/utils/logger/Logger.h)
};
inline constexpr const char* kLogComponents[] = {"config",     "engine", "bootstrap", "transport",
                                                 "collective", "select", "memory",    "gpu",
                                                 "torch",      "program"};
inline constexpr size_t kLogComponentCount = sizeof kLogComponents / sizeof *kLogComponents;

/// For each component the last level that is written; above all levels until TORCHCOMM_LOG is read.
extern std::atomic<uint8_t> logThresholds[kLogComponentCount];
/// Does what `logs` does, and reads TORCHCOMM_LOG first if that has not been done.
bool logsNow(LogComponent component, LogLevel level);

/// Returns whether messages of this level are written. It takes a load and a branch if they are
/// not.
inline bool logs(LogComponent component, LogLevel level) {
  const auto threshold =
      logThresholds[static_cast<size_t>(component)].load(std::memory_order_relaxed);
  if (static_cast<uint8_t>(level) > threshold) [[likely]]
    return false;
  return logsNow(component, level);
}

/// Writes one line, in one system call, so that lines of ranks that share a terminal do not mix:
/// "12:34:56.789012 ctran[pid] rank 3 warn transport: text"; or as JSON if TORCHCOMM_LOG_FORMAT
/// says so. Safe from any thread. Printf-style; a message longer than about 3000 bytes is cut. For
/// each `format` up to level info, TORCHCOMM_LOG_RATE lines a second are written; the next line
/// counts those that were left out.
[[gnu::format(printf, 3, 4)]] void log(LogComponent component, LogLevel level, const char* format,
                                       ...);

/// Logs a text, without the limit.
void logText(LogComponent component, LogLevel level, std::string_view text);

/// Sets the rank that messages name from now on: the one in the process' first communicator.
/// Negative for none.
void setLogRank(int rank);

/// Returns the name of this machine, for people.
std::string hostName();

/// A message on its way to where it is written.
struct LogRecord {
  int64_t seconds = 0;  ///< since 1970
  int micros = 0;
  LogLevel level = LogLevel::Info;
  LogComponent component = LogComponent::Engine;
  int rank = -1;  ///< -1: not known
  std::string text;
};

/// Takes messages instead of the places that TORCHCOMM_LOG_TO names.
class LogSink {
 public:
  virtual ~LogSink() = default;
  /// Called on any thread, with locks of the engine held, so it must not wait for anything. Returns
  /// false if it cannot take the message, which is then written to stderr.
  virtual bool take(const LogRecord& record) = 0;
};
/// Sets the sink, which lives as long as the process; null for none.
void setLogSink(LogSink* sink);
/// Returns whether TORCHCOMM_LOG_TO=python.
bool logsToPython();

}  // namespace ctran
