#pragma once

#include <functional>
#include <memory>

#include "ctran/base/replaceable.h"
#include "torchcomms/csrc/backends/builtin_backend.hpp"
#include "torchcomms/csrc/backends/c10d/backend.hpp"
#include "torchcomms/csrc/backends/candidates.hpp"

namespace torch::comms {

/// A c10d backend for tensors of the CPU that also takes tensors of devices, through host memory.
///
/// Inputs are copied when an operation is issued, and the CPU waits for that; results are copied
/// when it has ended, see staged/work.hpp. On the CPU every call is passed on directly. Calls in a
/// capture throw.
///
/// With enable_reconfigure it makes a new c10d backend whenever the members change. They find each
/// other as those of backend ctran do, which says who is late or lost.
class StagedBackend final : public BuiltinBackend {
 public:
  /// Makes a backend that has not been initialised.
  using Make = std::function<std::shared_ptr<C10dBackend>()>;

  explicit StagedBackend(Make make) : StagedBackend(make, make()) {}
  StagedBackend(Make make, std::shared_ptr<C10dBackend> inner) : make_(std::move(make)) {
    static_cast<void>(inner_.replace(std::move(inner)));
  }

  void init(at::Device device, std::string_view name, const CommOptions& options) override;
  void finalize() override { inner().finalize(); }

  int getRank() const override { return inner().getRank(); }
  int getSize() const override { return inner().getSize(); }
  std::string_view getCommName() const override { return inner().getCommName(); }
  std::string_view getBackendName() const override { return inner().getBackendName(); }
  std::string_view getBackendVersion() const override { return inner().getBackendVersion(); }
  const CommOptions& getOptions() const override { return inner().getOptions(); }

  WorkPtr issue(const Call& call) override;

  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;

  bool isAbortSupported() const override { return inner().isAbortSupported(); }
  void abort() override { inner().abort(); }
  bool isAborted() const override {
    return inner_.look([](const auto& inner) { return inner->isAborted(); });
  }
  void setTimeout(std::chrono::milliseconds timeout) override { inner().setTimeout(timeout); }
  void setHints(const Hints& hints) override { inner().setHints(hints); }
  void setFailureListener(std::function<void(bool)> listener) override {
    inner().setFailureListener(std::move(listener));
  }

  std::string getInitHandle() const override;
  void reconfigure(const ReconfigureOptions& options) override;

 private:
  C10dBackend& inner() const { return **inner_; }
  Candidates& candidates() const;

  /// Returns whether tensors are the CPU's. Throws ctran::Error before there are members, and
  /// (Unsupported) in a capture.
  bool direct(OpName op) const;

  const Make make_;
  ctran::Replaceable<std::shared_ptr<C10dBackend>> inner_;
  mutable std::unique_ptr<Candidates> candidates_;  ///< made when asked for
  bool formed_ = false;                             ///< it has members
};

}  // namespace torch::comms
