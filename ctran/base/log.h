#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ctran {

/// Error: something failed that no exception reports. Warn: works, but not as the user would want.
/// Info: once per communicator or process. Debug: once per operation or connection. Trace: more. A
/// failure that is thrown is not logged as well.
enum class LogLevel : uint8_t { Error, Warn, Info, Debug, Trace };
inline constexpr const char* kLogLevels[] = {"error", "warn", "info", "debug", "trace"};

/// Whose message it is: each has a level of its own (TORCHCOMM_LOG).
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
  Program,  ///< what uses the library (comms/utils/logger/Logger.h)
};
inline constexpr const char* kLogComponents[] = {"config",     "engine", "bootstrap", "transport",
                                                 "collective", "select", "memory",    "gpu",
                                                 "torch",      "program"};
inline constexpr size_t kLogComponentCount = sizeof kLogComponents / sizeof *kLogComponents;

/// Per component the last level that is written; above all levels until TORCHCOMM_LOG is read.
extern std::atomic<uint8_t> logThresholds[kLogComponentCount];
/// The same, after TORCHCOMM_LOG is read if it was not yet.
bool logsNow(LogComponent component, LogLevel level);

/// Whether messages of this level are written: a load and a branch where they are not.
inline bool logs(LogComponent component, LogLevel level) {
  const auto threshold =
      logThresholds[static_cast<size_t>(component)].load(std::memory_order_relaxed);
  if (static_cast<uint8_t>(level) > threshold) [[likely]]
    return false;
  return logsNow(component, level);
}

/// Writes one line, in one system call, so lines of ranks that share a terminal do not mix:
/// "12:34:56.789012 ctran[pid] rank 3 warn transport: text", or as JSON, where TORCHCOMM_LOG_TO
/// says. Any thread. Printf-style; a message longer than about 3000 bytes is cut. Of a message of
/// up to level info, which `format` names, TORCHCOMM_LOG_RATE lines a second are written; the next
/// one counts those that were left out.
[[gnu::format(printf, 3, 4)]] void log(LogComponent component, LogLevel level, const char* format,
                                       ...);

/// The same for a text, without the limit.
void logText(LogComponent component, LogLevel level, std::string_view text);

/// The rank to name from now on: the one in the process' first communicator. Negative for none.
void setLogRank(int rank);

/// Of this machine, for people.
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
  /// Any thread, with locks of the engine held: must not wait for anybody. False: it cannot take
  /// the message, which is written to stderr.
  virtual bool take(const LogRecord& record) = 0;
};
/// `sink` lives as long as the process; null for none.
void setLogSink(LogSink* sink);
/// Whether TORCHCOMM_LOG_TO=python.
bool logsToPython();

}  // namespace ctran
