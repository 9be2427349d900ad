#include <comms/utils/logger/Logger.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "ctran/base/log.h"

namespace comms::logger {
namespace {

ctran::LogLevel levelOf(Severity severity) { return static_cast<ctran::LogLevel>(severity); }

}  // namespace

static_assert(static_cast<int>(Severity::Error) == static_cast<int>(ctran::LogLevel::Error));
static_assert(static_cast<int>(Severity::Trace) == static_cast<int>(ctran::LogLevel::Trace));

constinit const std::atomic<uint8_t>& threshold =
    ctran::logThresholds[static_cast<size_t>(ctran::LogComponent::Program)];

bool isOnNow(Severity severity) {
  return ctran::logsNow(ctran::LogComponent::Program, levelOf(severity));
}

Message::Message(Severity severity, bool isFatal, const char* file, int line)
    : severity_(severity), isFatal_(isFatal) {
  const char* slash = std::strrchr(file, '/');
  stream_ << (slash == nullptr ? file : slash + 1) << ':' << line << ": ";
}

Message::~Message() {
  ctran::logText(ctran::LogComponent::Program, levelOf(severity_), stream_.str());
  if (isFatal_) std::abort();
}

}  // namespace comms::logger
