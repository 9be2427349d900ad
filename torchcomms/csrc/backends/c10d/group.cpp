#include "torchcomms/csrc/backends/c10d/group.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <cxxabi.h>

#include <algorithm>
#include <comms/torchcomms/TorchWork.hpp>

#include "ctran/base/error.h"
#include "torchcomms/csrc/backends/c10d/errors.hpp"
#include "torchcomms/csrc/exit_gate.hpp"

namespace torch::comms {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// How long a signal may go unnoticed.
constexpr milliseconds kSlice{100};

}  // namespace

void C10dGroup::requireOwn() const {
  if (isOwn()) return;
  throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                     "communicator '" + name + "' belongs to the process that forked this one", {},
                     {}, "make communicators after the fork, or start processes with spawn");
}

void C10dGroup::requireWhole(OpName op) const {
  requireOwn();
  if (!backend) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "Communicator '" + name + "' already finalized", {},
                       std::string(toString(op)));
  }
  if (!broken_) [[likely]]
    return;
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = error_;
  }
  monitor->seen();
  std::rethrow_exception(error);
}

void C10dGroup::breakWith(const std::exception_ptr& error) {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = error;
    broken_ = true;
  }
  monitor->broken();
}

void C10dGroup::interrupted(OpName op) {
  const std::string what(toString(op));
  breakWith(
      std::make_exception_ptr(ctran::Error(ctran::ErrorKind::Aborted,
                                           "rank " + std::to_string(rank) + " was interrupted in " +
                                               what + " of communicator '" + name + "'",
                                           {rank}, what, "make a new communicator")));
}

void C10dCall::checkInterrupts() const {
  try {
    HostWait::checkInterrupts();
  } catch (...) {
    interrupted_ = true;
    throw;
  }
}

void C10dCall::wait(const WorkPtr& work) const {
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline_ - Clock::now());
    const milliseconds slice = std::clamp(left, milliseconds(1), kSlice);
    try {
      work->wait(slice);
      return;
    } catch (...) {
      // Its own error, or only the end of the slice; it may also have ended since.
      if (work->isCompleted()) {
        work->wait(milliseconds(1));
        return;
      }
    }
    if (Clock::now() >= deadline_) {
      throw ctran::Error(ctran::ErrorKind::Timeout,
                         std::string(toString(op_)) + " on communicator '" + group_.name +
                             "' timed out after " + std::to_string(timeout_.count()) + " ms",
                         {}, std::string(toString(op_)),
                         "did every rank call it? Backend ctran says which did not");
    }
    if (interruptible_) checkInterrupts();
  }
}

void C10dCall::carryOut(const std::function<void(const C10dCall&)>& body) {
  // Tensors are written as memory: not part of what autograd records.
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  try {
    body(*this);
  } catch (const abi::__forced_unwind&) {  // who let go of a tensor had to ask for the lock
    ExitGate::stay();
  } catch (...) {
    if (interrupted_) {
      group_.interrupted(op_);
      throw;
    }
    const std::exception_ptr error =
        translated(std::current_exception(), op_, group_.name, std::nullopt);
    group_.breakWith(error);
    std::rethrow_exception(error);
  }
}

}  // namespace torch::comms
