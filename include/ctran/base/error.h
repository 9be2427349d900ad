#pragma once

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "ctran/base/export.h"

namespace ctran {

enum class ErrorKind : int {
  InvalidArgument,  ///< the call itself was wrong; the communicator is untouched
  Timeout,          ///< a deadline passed; `ranks` are those that were waited for
  PeerLost,         ///< `ranks` died or left
  Mismatch,         ///< ranks called different operations
  Aborted,          ///< somebody called abort()
  Unsupported,      ///< this build or this machine cannot do it
  System,           ///< the operating system reported an error
};

/// An error of the engine: what happened, to which ranks, in which operation, and what to try.
/// Copies share nothing, so each thread may be given its own.
class CTRAN_API Error : public std::exception {
 public:
  Error(ErrorKind kind, const std::string& message, std::vector<int> ranks = {},
        std::string op = {}, std::string hint = {})
      : message_(hint.empty() ? message : message + "\n  hint: " + hint),
        kind_(kind),
        ranks_(std::move(ranks)),
        op_(std::move(op)),
        hint_(std::move(hint)) {}

  const char* what() const noexcept override { return message_.c_str(); }
  /// Returns `what` without the hint.
  std::string message() const {
    return hint_.empty() ? message_ : message_.substr(0, message_.rfind("\n  hint: "));
  }
  ErrorKind kind() const { return kind_; }
  const std::vector<int>& ranks() const { return ranks_; }
  const std::string& op() const { return op_; }
  const std::string& hint() const { return hint_; }

 private:
  std::string message_;
  ErrorKind kind_;
  std::vector<int> ranks_;
  std::string op_;
  std::string hint_;
};

/// Makes an Error of kind System: "what: strerror(errno)".
CTRAN_API Error systemError(const std::string& what, int errnum, std::string op = {});

}  // namespace ctran
