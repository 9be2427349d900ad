#pragma once

#include <atomic>
#include <comms/torchcomms/TorchCommTypes.hpp>
#include <comms/torchcomms/TorchWork.hpp>
#include <memory>

#include "ctran/base/error.h"
#include "ctran/base/work.h"
#include "torchcomms/csrc/engine_wait_hooks.hpp"
#include "torchcomms/csrc/error_monitor.hpp"

namespace torch::comms {

/// Calls the engine. An error that breaks the communicator and reaches the program counts as seen.
template <typename Ask>
auto visibly(ErrorMonitor& monitor, Ask ask) {
  try {
    return ask();
  } catch (const ctran::Error& e) {
    if (e.kind() != ctran::ErrorKind::InvalidArgument) {
      monitor.seen();
      monitor.broken();
    }
    throw;
  } catch (...) {  // the host ended the wait: Ctrl-C
    monitor.seen();
    monitor.broken();
    throw;
  }
}

/// A posted operation of the engine.
class CtranWork final : public TorchWork {
 public:
  /// `source`: where the engine writes the sender of a receive from any rank.
  static c10::intrusive_ptr<CtranWork> make(OpName op, std::shared_ptr<ctran::Work> work,
                                            std::shared_ptr<ErrorMonitor> monitor,
                                            std::shared_ptr<const int> source = nullptr);
  ~CtranWork() override;

  WorkStatus status() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override {
    return source_ && work_->state() == ctran::WorkState::Completed ? *source_ : -1;
  }
  void setCallback(Hook callback) override { work_->onDone(std::move(callback)); }
  void setStartCallback(Hook callback) override { work_->onStart(std::move(callback)); }

 protected:
  bool doWait(std::optional<std::chrono::milliseconds> limit) override;

 private:
  friend class c10::intrusive_ptr<CtranWork>;
  CtranWork(OpName op, std::shared_ptr<ctran::Work> work, std::shared_ptr<ErrorMonitor> monitor,
            std::shared_ptr<const int> source);

  void ended();
  void throwIfFailed() const;

  const OpName op_;
  const std::shared_ptr<ctran::Work> work_;
  const std::shared_ptr<ErrorMonitor> monitor_;
  const std::shared_ptr<const int> source_;
  std::atomic<int> waiting_{0};  ///< number of threads that will see how the operation ends
};

}  // namespace torch::comms
