#pragma once

#include <stdexcept>
#include <string>

namespace mscclpp {

enum class ErrorCode {
  SystemError,    ///< the operating system said no
  InternalError,  ///< a mistake of this library
  RemoteError,    ///< another rank has died or left
  InvalidUsage,   ///< the call itself was wrong
  Timeout,        ///< a deadline passed
  Aborted,        ///< somebody called abort
  ExecutorError,  ///< a plan cannot be executed
};

inline std::string errorToString(ErrorCode code) {
  switch (code) {
    case ErrorCode::SystemError:
      return "SystemError";
    case ErrorCode::InternalError:
      return "InternalError";
    case ErrorCode::RemoteError:
      return "RemoteError";
    case ErrorCode::InvalidUsage:
      return "InvalidUsage";
    case ErrorCode::Timeout:
      return "Timeout";
    case ErrorCode::Aborted:
      return "Aborted";
    case ErrorCode::ExecutorError:
      return "ExecutorError";
  }
  return "an unknown error";
}

/// What everything here throws: the message says what happened, to whom, and what to try.
class BaseError : public std::runtime_error {
 public:
  BaseError(const std::string& message, int code) : std::runtime_error(message), code_(code) {}
  int getErrorCode() const { return code_; }

 private:
  int code_;
};

class Error : public BaseError {
 public:
  Error(const std::string& message, ErrorCode code)
      : BaseError(message + " (mscclpp: " + errorToString(code) + ")", static_cast<int>(code)) {}
  ErrorCode getErrorCode() const { return static_cast<ErrorCode>(BaseError::getErrorCode()); }
};

/// With an errno.
class SysError : public BaseError {
 public:
  SysError(const std::string& message, int errnum);
};

/// With a cudaError_t.
class CudaError : public BaseError {
 public:
  CudaError(const std::string& message, int code)
      : BaseError(message + " (CUDA error " + std::to_string(code) + ")", code) {}
};

}  // namespace mscclpp
