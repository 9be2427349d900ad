#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "ctran/stream/error_observer.h"

namespace torch::comms {

/// Makes sure that no error of a communicator goes unseen: the policy of
/// CommOptions::abort_process_on_timeout_or_error.
///
/// An error is seen once it has been thrown to the program or read from a work. A communicator
/// breaks once, so one seen error covers all that follow. An unseen error ends the process when
/// nothing can show it any more (its work is gone), or when it stays unseen for a period of grace
/// (TORCHCOMM_ERROR_GRACE_SECONDS, 10 by default).
///
/// All methods may be called from any thread, and block for as long as the listener does.
class ErrorMonitor final : public ctran::ErrorObserver,
                           public std::enable_shared_from_this<ErrorMonitor> {
 public:
  /// `who` begins the message: "rank 0 of communicator 'world' (ctran)".
  ErrorMonitor(std::string who, bool abortProcess);

  /// `listener` is called, on any thread, whenever an operation has failed: it must not take long.
  /// It is called again with true just before the process ends for the error; then it may take
  /// long.
  void listen(std::function<void(bool processEnds)> listener);

  /// An operation has failed: tells the listener.
  void broken() override { tell(/*processEnds=*/false); }
  /// Is called when an asynchronous operation has failed. `reachable`: the program still holds its
  /// work.
  void failed(const std::string& what, const std::exception_ptr& error, bool reachable) override;
  /// Is called when the program has let go of a work whose operation failed.
  void dropped(const std::string& what, const std::exception_ptr& error) override;
  /// Is called when an error has been shown to the program, or the communicator is being shut down:
  /// no later error counts as unseen.
  void seen() override;

 private:
  void report(const std::string& what, const std::exception_ptr& error);
  void tell(bool processEnds);
  void startCounting(const std::string& what, const std::exception_ptr& error);

  const std::string who_;
  const bool abortProcess_;
  const std::chrono::milliseconds grace_;
  std::mutex mutex_;
  std::function<void(bool)> listener_;
  bool seen_ = false;
  bool counting_ = false;  ///< the thread that waits for the period of grace is running
};

/// Returns the message of any exception.
std::string describe(const std::exception_ptr& error);

}  // namespace torch::comms
