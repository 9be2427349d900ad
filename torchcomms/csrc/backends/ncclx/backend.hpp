#pragma once

#include <functional>
#include <memory>
#include <string>

#include "torchcomms/csrc/backends/ctran/backend.hpp"
#include "torchcomms/csrc/backends/nccl/backend.hpp"
#include "torchcomms/csrc/backends/ncclx/choice.hpp"

namespace torch::comms {

/// The engine first, and NCCL where that is faster: two communicators of the same ranks, of which
/// each call takes one, by its kind, bytes, type and reduction, so by what all ranks agree about.
///
/// Without GPUs that reach each other there is only NCCL, without NCCL on every rank only the
/// engine. Operations run in the order of the calls, whichever member they are of. When one member
/// breaks, the other does, with the same error.
class NcclxBackend final : public BuiltinBackend {
 public:
  NcclxBackend() = default;
  ~NcclxBackend() override;
  NcclxBackend(const NcclxBackend&) = delete;
  NcclxBackend& operator=(const NcclxBackend&) = delete;

  void init(at::Device device, std::string_view name, const CommOptions& options) override;
  void finalize() override;

  std::string_view getBackendName() const override { return "ncclx"; }
  /// NCCL's, if there is one.
  std::string_view getBackendVersion() const override;

  WorkPtr issue(const Call& call) override;

  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;
  bool supportsWindows() const override { return any().supportsWindows(); }
  std::shared_ptr<TorchCommWindow> new_window() override;

  bool isAbortSupported() const override { return true; }
  void abort() override;
  bool isAborted() const override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setHints(const Hints& hints) override;
  void tensorRegister(const at::Tensor& tensor) override;
  std::shared_ptr<void> prepare(OpName op, const at::Tensor& output,
                                const OpOptions& options) override;
  void tensorDeregister(const at::Tensor& tensor) override;
  void setFailureListener(std::function<void(bool)> listener) override;
  uint64_t engineToken() const override { return token_; }

 private:
  using Kind = ctran::CollectiveKind;

  /// From here on there is a choice between the members.
  void settle(const CommOptions& options, std::string noEngine, std::string noVendor);
  std::string whyNoVendor() const;
  void chooseTable();
  TorchCommBackend& any() const;
  /// Whether the vendor's member serves the call; the engine's does it otherwise.
  bool takesVendor(const Call& call) const;
  /// Throws ctran::Error (Unsupported) if there is only the vendor's library.
  void requireEngine(OpName op) const;
  void followOther(const Call& call, bool vendor);
  void connectFailures();

  std::shared_ptr<CtranBackend> engine_;  ///< null: the GPUs do not reach each other
  std::shared_ptr<NcclBackend> vendor_;   ///< null: some rank has no library, or shares its GPU
  std::shared_ptr<ncclx::Choice> choice_;
  uint64_t token_ = 0;
  bool lastWasVendor_ = false;  ///< the member of the last call that was not captured
  std::function<void(bool)> listener_;
};

}  // namespace torch::comms
