#include "torchcomms/csrc/error_monitor.hpp"

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/os/process.h"
#include "torchcomms/csrc/config.hpp"

namespace torch::comms {

ErrorMonitor::ErrorMonitor(std::string who, bool abortProcess)
    : who_(std::move(who)), abortProcess_(abortProcess), grace_(kErrorGraceSeconds.get()) {}

void ErrorMonitor::failed(const std::string& what, const std::exception_ptr& error,
                          bool reachable) {
  if (abortProcess_ && !reachable) return dropped(what, error);
  if (abortProcess_) startCounting(what, error);
  broken();
}

void ErrorMonitor::startCounting(const std::string& what, const std::exception_ptr& error) {
  {
    const std::lock_guard lock(mutex_);
    if (seen_ || counting_) return;
    counting_ = true;
  }
  // Failures are rare and final, so the thread is made for this one. It is on its own: the process
  // may end before it does.
  try {
    ctran::startThread("comms-error", [self = shared_from_this(), what, error] {
      std::this_thread::sleep_for(self->grace_);
      self->report(what, error);
    });
  } catch (const ctran::Error& none) {
    // The caller may be a thread that others need. Whoever lets go of the work is told.
    ctran::log(ctran::LogComponent::Torch, ctran::LogLevel::Error,
               "%s: %s failed: %s (and nothing watches whether it is seen: %s)", who_.c_str(),
               what.c_str(), describe(error).c_str(), none.what());
  }
}

void ErrorMonitor::dropped(const std::string& what, const std::exception_ptr& error) {
  if (abortProcess_) report(what, error);
}

void ErrorMonitor::listen(std::function<void(bool)> listener) {
  const std::lock_guard lock(mutex_);
  listener_ = std::move(listener);
}

void ErrorMonitor::tell(bool processEnds) {
  std::function<void(bool)> listener;
  {
    const std::lock_guard lock(mutex_);
    listener = listener_;
  }
  if (listener) listener(processEnds);
}

void ErrorMonitor::seen() {
  const std::lock_guard lock(mutex_);
  seen_ = true;
}

void ErrorMonitor::report(const std::string& what, const std::exception_ptr& error) {
  {
    std::unique_lock lock(mutex_);
    if (seen_) {
      lock.unlock();
      return broken();
    }
  }
  std::fprintf(stderr,
               "[torchcomms] %s: %s failed and nobody looked at its work: %s\n"
               "[torchcomms] Ending the process. To go on instead, pass "
               "abort_process_on_timeout_or_error=False or set TORCHCOMM_ABORT_ON_ERROR=0.\n",
               who_.c_str(), what.c_str(), describe(error).c_str());
  std::fflush(stderr);
  tell(/*processEnds=*/true);
  std::abort();
}

std::string describe(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "unknown error";
  }
}

}  // namespace torch::comms
