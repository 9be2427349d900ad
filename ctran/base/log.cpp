#include "ctran/base/log.h"

#include <fcntl.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/base/json.h"
#include "ctran/base/text.h"

namespace ctran {

constinit std::atomic<uint8_t> logThresholds[kLogComponentCount] = {255, 255, 255, 255, 255,
                                                                    255, 255, 255, 255, 255};

namespace {

template <size_t N>
std::optional<size_t> indexIn(const char* const (&words)[N], std::string_view word) {
  const auto* found = std::find(words, words + N, word);
  return found == words + N ? std::nullopt : std::make_optional<size_t>(found - words);
}

using Levels = std::array<uint8_t, kLogComponentCount>;

/// "info,transport=debug,bootstrap=trace": a level for all components, and for some of them.
class ConfigLevels final : public ConfigVariable {
 public:
  ConfigLevels(const char* name, const char* doc) : ConfigVariable(name, doc, Change::Live) {}
  std::string type() const override { return "levels"; }
  std::string defaultText() const override { return "warn"; }
  std::string valueText() const override {
    static_cast<void>(get());
    const std::string text = raw();
    return text.empty() ? defaultText() : text;
  }
  void check(const std::string& text) const override { static_cast<void>(parse(text)); }
  Levels get() const { return parse(raw()); }

 private:
  Levels parse(const std::string& text) const {
    Levels levels;
    levels.fill(static_cast<uint8_t>(LogLevel::Warn));
    std::string_view rest = text;
    // A level for all comes before those for some, wherever it stands.
    for (const bool forAll : {true, false}) {
      for (std::string_view left = rest; !left.empty();) {
        const size_t comma = left.find(',');
        const std::string_view part = trimmed(left.substr(0, comma));
        left = comma == std::string_view::npos ? std::string_view() : left.substr(comma + 1);
        const size_t equals = part.find('=');
        const bool isForAll = equals == std::string_view::npos;
        const auto level = indexIn(kLogLevels, isForAll ? part : part.substr(equals + 1));
        if (!level) reject(text, "a list of levels: error, warn, info, debug or trace");
        if (isForAll != forAll) continue;
        if (isForAll) {
          levels.fill(static_cast<uint8_t>(*level));
        } else if (const auto component = indexIn(kLogComponents, part.substr(0, equals))) {
          levels[*component] = static_cast<uint8_t>(*level);
        } else {
          std::string known;
          for (const char* name : kLogComponents)
            known += (known.empty() ? "" : "|") + std::string(name);
          reject(text, "a list of levels: the components are " + known);
        }
      }
    }
    return levels;
  }
};

const ConfigLevels kLog{
    "TORCHCOMM_LOG",
    "What is logged: a level (error, warn, info, debug, trace), and levels of single components, "
    "as "
    "in info,transport=debug (config, engine, bootstrap, transport, collective, select, memory, "
    "gpu, "
    "torch, program). info: a line per communicator; debug: a line per operation."};
const ConfigLevels kEngineLog{"CTRAN_LOG", "The same, where TORCHCOMM_LOG is not set."};
const ConfigString kTo{
    "TORCHCOMM_LOG_TO", "stderr",
    "Where the log goes: stderr, python (the module logging, loggers torchcomms.COMPONENT), or a "
    "file, in whose name %r is the rank, %p the process and %h the host.",
    "stderr, python or a path"};
const ConfigChoice kFormat{"TORCHCOMM_LOG_FORMAT", "text|json", "text",
                           "Lines of text, or a JSON object in each line."};
const ConfigInt kLogRate{
    "TORCHCOMM_LOG_RATE", 20,
    "How many lines a second of one message are written; 0: all. Level debug and "
    "trace have no limit.",
    0, 1'000'000};

constexpr size_t kLongestText = 3000;
std::atomic<int> gRank{-1};
std::atomic<LogSink*> gSink{nullptr};

// Never destroyed: threads write until the process ends.
struct Settings {
  std::once_flag read;
  bool asJson = false;
  bool toPython = false;
  uint64_t rate = 0;
  std::string path;           // with what % stands for; empty: stderr
  std::atomic<int> file{-1};  // -1: not open yet; -2: it cannot be opened
};

Settings& settings() {
  static Settings& only = *new Settings;
  return only;
}

void writeTo(int file, const std::string& line) {
  // A log that cannot be written is no reason to fail.
  ssize_t written;
  do {
    written = ::write(file, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
}

std::string logLine(const LogRecord& record, bool asJson) {
  const char* level = kLogLevels[static_cast<size_t>(record.level)];
  const char* component = kLogComponents[static_cast<size_t>(record.component)];
  const auto seconds = static_cast<time_t>(record.seconds);
  tm parts;
  char text[160];
  if (asJson) {
    gmtime_r(&seconds, &parts);
    size_t used = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + used, sizeof text - used, ".%06dZ", record.micros);
    Json json = Json::object();
    json.set("time", Json(text)).set("host", Json(hostName()));
    json.set("pid", Json(static_cast<int>(getpid())));
    json.set("rank", record.rank < 0 ? Json() : Json(record.rank));
    json.set("level", Json(level)).set("component", Json(component));
    json.set("text", Json(record.text));
    return json.print() + "\n";
  }
  localtime_r(&seconds, &parts);
  size_t used = strftime(text, sizeof text, "%H:%M:%S", &parts);
  used += snprintf(text + used, sizeof text - used, ".%06d ctran[%d] ", record.micros,
                   static_cast<int>(getpid()));
  if (record.rank >= 0) used += snprintf(text + used, sizeof text - used, "rank %d ", record.rank);
  snprintf(text + used, sizeof text - used, "%s %s: ", level, component);
  return text + record.text + "\n";
}

std::string fileName(const std::string& pattern, int rank) {
  std::string name;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char what = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : 0;
    if (what == 'r') name += std::to_string(rank);
    if (what == 'p') name += std::to_string(getpid());
    if (what == 'h') name += hostName();
    const bool isSpecial = what == 'r' || what == 'p' || what == 'h';
    if (!isSpecial) name += pattern[i];
    if (isSpecial) ++i;
  }
  return name;
}

LogRecord logRecord(LogComponent component, LogLevel level, std::string text) {
  timeval now;
  gettimeofday(&now, nullptr);
  LogRecord record;
  record.seconds = now.tv_sec;
  record.micros = static_cast<int>(now.tv_usec);
  record.level = level;
  record.component = component;
  record.rank = gRank.load(std::memory_order_relaxed);
  record.text = std::move(text);
  return record;
}

void warnAtOnce(const std::string& text) {
  writeTo(STDERR_FILENO, logLine(logRecord(LogComponent::Config, LogLevel::Warn, text), false));
}

/// The file, as soon as its name is known; else stderr.
int destination(Settings& s) {
  if (s.path.empty()) return STDERR_FILENO;
  int file = s.file.load(std::memory_order_acquire);
  if (file >= 0) return file;
  const int rank = gRank.load(std::memory_order_relaxed);
  if (file == -2 || (rank < 0 && s.path.find("%r") != std::string::npos)) return STDERR_FILENO;
  const std::string name = fileName(s.path, rank);
  file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const int error = errno;
  int expected = -1;
  const bool isFirst = s.file.compare_exchange_strong(expected, file < 0 ? -2 : file);
  if (file < 0) {
    if (isFirst) warnAtOnce("TORCHCOMM_LOG_TO: " + name + ": " + std::strerror(error));
    return STDERR_FILENO;
  }
  if (!isFirst) ::close(file);  // another thread was faster
  return s.file.load(std::memory_order_acquire);
}

// What is wrong with a variable must not turn a message into an exception.
template <class Read>
void readQuietly(Read read) {
  try {
    read();
  } catch (const Error& error) {
    warnAtOnce(error.what());
  }
}

void readLevels() {
  Levels levels;
  levels.fill(static_cast<uint8_t>(LogLevel::Warn));
  readQuietly([&] { levels = kLog.isSet() ? kLog.get() : kEngineLog.get(); });
  for (size_t i = 0; i < kLogComponentCount; ++i) {
    logThresholds[i].store(levels[i], std::memory_order_relaxed);
  }
}

const WhenLiveChanges kLogChanges{kLog, readLevels};
const WhenLiveChanges kEngineLogChanges{kEngineLog, readLevels};

Settings& readSettings() {
  Settings& s = settings();
  std::call_once(s.read, [&] {
    readLevels();
    readQuietly([&] { s.asJson = kFormat.index() == 1; });
    readQuietly([&] { s.rate = static_cast<uint64_t>(kLogRate.get()); });
    const std::string to = kTo.get();
    s.toPython = to == "python";
    if (to != "stderr" && !s.toPython) s.path = to;
  });
  return s;
}

void deliver(LogRecord record) {
  Settings& s = readSettings();
  LogSink* sink = gSink.load(std::memory_order_acquire);
  if (sink != nullptr && sink->take(record)) return;
  writeTo(destination(s), logLine(record, s.asJson));
}

/// Counts the lines of each message within a second; without locks, as everything that logs while
/// others hold some.
class Limit {
 public:
  /// Returns whether another line is written; then `leftOut` is how many were left out since the
  /// last one.
  bool admits(const char* message, uint64_t rate, uint64_t now, uint64_t& leftOut) {
    leftOut = 0;
    if (rate == 0) return true;
    Slot* const slot = slotOf(message);
    if (slot == nullptr) return true;
    uint64_t seen = slot->count.load(std::memory_order_relaxed);
    while (true) {  // the second it was in, and how many there were in it
      const uint64_t second = seen >> 32, count = seen & UINT32_MAX;
      const bool isSame = second == (now & UINT32_MAX);
      const uint64_t next = isSame ? seen + 1 : (now << 32) + 1;
      if (!slot->count.compare_exchange_weak(seen, next, std::memory_order_relaxed)) continue;
      if (isSame) return count < rate;
      if (count > rate) leftOut = count - rate;
      return true;
    }
  }

 private:
  struct Slot {
    std::atomic<const char*> message{nullptr};
    std::atomic<uint64_t> count{0};
  };

  /// Null if there are too many messages.
  Slot* slotOf(const char* message) {
    const size_t first = reinterpret_cast<uintptr_t>(message) / 8;
    for (size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[(first + i) % slots_.size()];
      const char* found = slot.message.load(std::memory_order_relaxed);
      if (found == message) return &slot;
      if (found != nullptr) continue;
      if (slot.message.compare_exchange_strong(found, message)) return &slot;
      if (found == message) return &slot;
    }
    return nullptr;
  }

  std::array<Slot, 512> slots_;
};

constinit Limit gLimit;

}  // namespace

std::string hostName() {
  char name[HOST_NAME_MAX + 1] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

bool logsNow(LogComponent component, LogLevel level) {
  readSettings();
  return static_cast<uint8_t>(level) <=
         logThresholds[static_cast<size_t>(component)].load(std::memory_order_relaxed);
}

void log(LogComponent component, LogLevel level, const char* format, ...) {
  if (!logs(component, level)) return;
  const int savedErrno = errno;
  try {
    uint64_t leftOut = 0;
    const uint64_t rate = level <= LogLevel::Info ? readSettings().rate : 0;
    if (gLimit.admits(format, rate, static_cast<uint64_t>(::time(nullptr)), leftOut)) {
      char text[kLongestText];
      va_list args;
      va_start(args, format);
      vsnprintf(text, sizeof text, format, args);
      va_end(args);
      std::string whole = text;
      if (leftOut > 0) whole += " (and " + std::to_string(leftOut) + " like it, left out before)";
      deliver(logRecord(component, level, std::move(whole)));
    }
  } catch (const std::exception&) {  // no memory
  }
  errno = savedErrno;
}

void logText(LogComponent component, LogLevel level, std::string_view text) {
  if (!logs(component, level)) return;
  const int savedErrno = errno;
  try {
    deliver(logRecord(component, level, std::string(text.substr(0, kLongestText))));
  } catch (const std::exception&) {  // no memory
  }
  errno = savedErrno;
}

void setLogRank(int rank) { gRank.store(rank, std::memory_order_relaxed); }

void setLogSink(LogSink* sink) { gSink.store(sink, std::memory_order_release); }

bool logsToPython() { return readSettings().toPython; }

}  // namespace ctran
