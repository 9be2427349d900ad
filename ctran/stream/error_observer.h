#pragma once

#include <exception>
#include <string>

namespace ctran {

/// Is told which errors of a communicator the program has seen and which it may miss. The default
/// does nothing. Called on any thread; no method may block or throw.
class ErrorObserver {
 public:
  virtual ~ErrorObserver() = default;

  /// The program has been given the error that broke the communicator, or has aborted it itself.
  virtual void seen() {}
  /// The communicator has broken while a thread waits; that wait will throw the error.
  virtual void broken() {}
  /// Operation `op` has failed and no thread waits for it. `reachable`: the program can still ask
  /// for the error.
  virtual void failed(const std::string& op, const std::exception_ptr& error, bool reachable) {
    static_cast<void>(op), static_cast<void>(error), static_cast<void>(reachable);
  }
  /// The program has let go of operation `op`, which has failed.
  virtual void dropped(const std::string& op, const std::exception_ptr& error) {
    static_cast<void>(op), static_cast<void>(error);
  }
};

}  // namespace ctran
