#include "torchcomms/csrc/backends/c10d/errors.hpp"

#include <c10/util/Exception.h>

#include <array>
#include <string_view>
#include <vector>

#include "ctran/base/error.h"
#include "torchcomms/csrc/error_monitor.hpp"

namespace torch::comms {

namespace {

/// The words of Gloo and c10d for a timeout.
constexpr std::array<std::string_view, 3> kTimeouts{"imed out", "imeout", "deadline"};
constexpr std::array<std::string_view, 6> kLosses{"onnection closed",  "onnection reset",
                                                  "onnection refused", "Broken pipe",
                                                  "Socket closed",     "ocket is not connected"};

template <size_t kCount>
bool mentions(std::string_view text, const std::array<std::string_view, kCount>& words) {
  for (const std::string_view word : words) {
    if (text.find(word) != std::string_view::npos) return true;
  }
  return false;
}

std::string textOf(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  } catch (...) {
    return describe(error);
  }
}

bool isOurs(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ctran::Error&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

std::exception_ptr translated(const std::exception_ptr& error, OpName op, const std::string& comm,
                              std::optional<int> peer) {
  if (isOurs(error)) return error;
  const std::string text = textOf(error);
  const std::string what = std::string(toString(op)) + " on communicator '" + comm + "'" +
                           (peer ? " with rank " + std::to_string(*peer) : "");
  std::vector<int> ranks;
  if (peer) ranks.push_back(*peer);
  if (mentions(text, kTimeouts)) {
    return std::make_exception_ptr(ctran::Error(
        ctran::ErrorKind::Timeout, what + " timed out: " + text, ranks, std::string(toString(op)),
        "did every rank call it? Backend ctran says which did not"));
  }
  if (mentions(text, kLosses)) {
    return std::make_exception_ptr(
        ctran::Error(ctran::ErrorKind::PeerLost, what + " lost a connection: " + text, ranks,
                     std::string(toString(op)),
                     "a rank has ended, or gave up waiting; backend ctran says which"));
  }
  return std::make_exception_ptr(ctran::Error(ctran::ErrorKind::System, what + " failed: " + text,
                                              ranks, std::string(toString(op))));
}

bool isTimeout(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ctran::Error& e) {
    return e.kind() == ctran::ErrorKind::Timeout;
  } catch (...) {
    return false;
  }
}

}  // namespace torch::comms
