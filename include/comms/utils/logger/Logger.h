#pragma once

#include <atomic>
#include <cstdint>
#include <sstream>

/// What a program logs beside the library, in the same lines:
///
///     LOG(INFO) << "Starting communication";
///     LOG(DEBUG) << "Rank " << rank << " sending data";
///
/// Severities: TRACE, DEBUG, INFO, WARNING (WARN), ERROR, and FATAL, which ends the process. What
/// is written where: TORCHCOMM_LOG (component `program`), TORCHCOMM_LOG_TO, TORCHCOMM_LOG_FORMAT
/// (docs/environment.md). What is not written costs a load and a branch; nothing behind << is
/// evaluated. LOG replaces the macro of that name of glog and c10: include this header last.
namespace comms::logger {

enum class Severity : uint8_t { Fatal = 0, Error = 0, Warning, Info, Debug, Trace };

/// The last severity that is written; 255 until that is known. Of the library.
extern const std::atomic<uint8_t>& threshold;
/// The same, when that is known.
bool isOnNow(Severity severity);

inline bool isOn(Severity severity) {
  if (static_cast<uint8_t>(severity) > threshold.load(std::memory_order_relaxed)) [[likely]]
    return false;
  return isOnNow(severity);
}

/// One message: written when it ends.
class Message {
 public:
  Message(Severity severity, bool isFatal, const char* file, int line);
  ~Message();
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  std::ostream& stream() { return stream_; }

 private:
  const Severity severity_;
  const bool isFatal_;
  std::ostringstream stream_;
};

/// Gives `condition ? void : stream << ...` one type.
struct Voidify {
  void operator&(std::ostream&) const {}
};

}  // namespace comms::logger

#define COMMS_LOG_(severity, fatal)                                                                \
  !(fatal || ::comms::logger::isOn(::comms::logger::Severity::severity))                           \
      ? (void)0                                                                                    \
      : ::comms::logger::Voidify() & ::comms::logger::Message(::comms::logger::Severity::severity, \
                                                              fatal, __FILE__, __LINE__)           \
                                         .stream()
#define COMMS_LOG_TRACE COMMS_LOG_(Trace, false)
#define COMMS_LOG_DEBUG COMMS_LOG_(Debug, false)
#define COMMS_LOG_INFO COMMS_LOG_(Info, false)
#define COMMS_LOG_WARN COMMS_LOG_(Warning, false)
#define COMMS_LOG_WARNING COMMS_LOG_(Warning, false)
#define COMMS_LOG_ERROR COMMS_LOG_(Error, false)
#define COMMS_LOG_FATAL COMMS_LOG_(Fatal, true)

#undef LOG
// Pasted at once: DEBUG and ERROR may be macros.
#define LOG(severity) COMMS_LOG_##severity
