#pragma once

#include <atomic>
#include <map>
#include <memory>

#include "ctran/base/replaceable.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/init_point.h"
#include "torchcomms/csrc/backends/builtin_backend.hpp"
#include "torchcomms/csrc/backends/ctran/place.hpp"
#include "torchcomms/csrc/error_monitor.hpp"

namespace torch::comms {

/// The backend of the project's own engine. It describes each operation as a ctran::Collective
/// (describe.hpp) and passes it to the place of its tensors (place.hpp).
///
/// On tensors of the CPU the engine runs or posts the operation. On GPUs it becomes work on a
/// stream: with `async_op` false on the stream that is current for the caller, with true on the
/// communicator's own stream, behind what the current one holds. While a stream captures, every
/// operation runs on it and belongs to its graph. No call waits for the device.
class CtranBackend final : public BuiltinBackend {
 public:
  CtranBackend() = default;
  ~CtranBackend() override;
  CtranBackend(const CtranBackend&) = delete;
  CtranBackend& operator=(const CtranBackend&) = delete;

  void init(at::Device device, std::string_view name, const CommOptions& options) override;
  void finalize() override;

  std::string_view getBackendName() const override { return "ctran"; }
  std::string_view getBackendVersion() const override { return TORCHCOMMS_VERSION; }

  WorkPtr issue(const Call& call) override;

  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override {
    return part(ranks, name, options);
  }
  std::shared_ptr<CtranBackend> part(const std::vector<int>& ranks, const std::string& name,
                                     const CommOptions& options);

  void tensorRegister(const at::Tensor& tensor) override;
  void tensorDeregister(const at::Tensor& tensor) override;
  std::shared_ptr<void> prepare(OpName op, const at::Tensor& output,
                                const OpOptions& options) override;
  bool supportsWindows() const override { return true; }
  std::shared_ptr<TorchCommWindow> new_window() override;

  bool isAbortSupported() const override { return true; }
  void abort() override;
  bool isAborted() const override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setHints(const Hints& hints) override;
  std::string getInitHandle() const override;
  void reconfigure(const ReconfigureOptions& options) override;
  void setFailureListener(std::function<void(bool)> listener) override {
    members_->monitor->listen(std::move(listener));
  }

  /// Null on the CPU.
  std::shared_ptr<ctran::GpuQueue> gpu() const { return engine().gpu(); }
  uint64_t engineToken() const override { return members_->comm ? members_->comm->token() : 0; }
  /// The engine's communicator of the same ranks, for tensors of the CPU. Throws if there are no
  /// ranks yet.
  ctran::Communicator& engine() const { return members_->engine(); }
  /// Returns that communicator; null if there are no ranks yet.
  const std::shared_ptr<ctran::Communicator>& shareEngine() const { return members_->comm; }
  /// Calls `look` with the engine, on any thread, whatever reconfigure() does meanwhile.
  void lookAtEngine(const std::function<void(ctran::Communicator&)>& look) const {
    members_.look([&](const Members& members) {
      members.monitor->seen();
      look(members.engine());
    });
  }
  const std::shared_ptr<ErrorMonitor>& monitor() const { return members_->monitor; }
  /// The hints of a call; null if there are none. Throws for what makes no sense.
  std::shared_ptr<const ctran::CallHints> hintsOf(const OpOptions& options) const;
  using BuiltinBackend::timeoutOf;
  using BuiltinBackend::unsupported;

 private:
  /// What reconfigure() replaces.
  struct Members {
    std::string name;
    std::shared_ptr<ctran::Communicator> comm;  ///< null until the first reconfigure
    std::shared_ptr<ErrorMonitor> monitor;
    ctran::Communicator& engine() const;
  };

  /// Collective if there is a communicator. If it throws nothing has changed.
  void adopt(std::shared_ptr<ctran::Communicator> comm, at::Device device, CommOptions options);

  ctran::Replaceable<Members> members_;
  bool onGpus_ = false;
  std::unique_ptr<CtranPlace> place_ = makePlaceOnCpu(*this);
  mutable std::unique_ptr<ctran::InitPoint> initPoint_;  ///< made when asked for
  std::atomic<bool> finalized_{false};
  std::map<const at::TensorImpl*, std::shared_ptr<void>> registered_;
};

}  // namespace torch::comms
