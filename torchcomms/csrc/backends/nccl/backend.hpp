#pragma once

#include <functional>
#include <map>
#include <memory>
#include <tuple>

#include "ctran/base/replaceable.h"
#include "ctran/engine/gpu_queue.h"
#include "torchcomms/csrc/backends/builtin_backend.hpp"
#include "torchcomms/csrc/backends/candidates.hpp"
#include "torchcomms/csrc/backends/nccl/group.hpp"

namespace torch::comms {

/// The backend of the vendor's library: NCCL, or another with its interface.
///
/// With `async_op` false an operation runs on the stream that is current for the caller, with true
/// on the communicator's own stream, behind what the current one holds. While a stream captures,
/// every operation runs on it and belongs to its graph. No call waits for the device.
class NcclBackend final : public BuiltinBackend {
 public:
  explicit NcclBackend(const nccl::Vendor& vendor) : vendor_(vendor) {}
  ~NcclBackend() override;
  NcclBackend(const NcclBackend&) = delete;
  NcclBackend& operator=(const NcclBackend&) = delete;

  void init(at::Device device, std::string_view name, const CommOptions& options) override;
  void finalize() override;

  std::string_view getBackendName() const override;
  std::string_view getBackendVersion() const override { return version_; }

  WorkPtr issue(const Call& call) override;

  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override {
    return part(ranks, name, options);
  }
  std::shared_ptr<NcclBackend> part(const std::vector<int>& ranks, const std::string& name,
                                    const CommOptions& options);

  bool supportsWindows() const override { return vendor_.platform == ctran::gpu::Platform::Cuda; }
  std::shared_ptr<TorchCommWindow> new_window() override;

  bool isAbortSupported() const override { return true; }
  void abort() override;
  bool isAborted() const override;
  void setTimeout(std::chrono::milliseconds timeout) override { options_.timeout = timeout; }
  /// Of communicators that are made of this one from now on.
  void setHints(const Hints& hints) override;
  void tensorRegister(const at::Tensor& tensor) override;
  void tensorDeregister(const at::Tensor& tensor) override;
  void setFailureListener(std::function<void(bool)> listener) override {
    if (*group_) (*group_)->setup().monitor->listen(std::move(listener));
  }
  std::string getInitHandle() const override;
  void reconfigure(const ReconfigureOptions& options) override;

  /// Throws ctran::Error before there are members.
  nccl::Group& group() const;
  const std::shared_ptr<nccl::Group>& shareGroup() const { return *group_; }
  const nccl::Library& library() const { return *library_; }

 private:
  /// What an operation calls the library with while it is being issued.
  struct Issue {
    nccl::Group& group;
    const nccl::Library& library;
    nccl::Comm comm;
    nccl::Stream stream;

    void check(nccl::Result result, const char* function) const { group.check(result, function); }
    void send(const void* from, size_t bytes, int peer) const;
    void recv(void* to, size_t bytes, int peer) const;
  };
  enum class Form : uint8_t { One, Grouped };  ///< of the library's calls
  class WindowHost;

  /// Makes the group of these members. Collective over them. `usual`: the timeout of operations.
  void form(CommOptions members, std::chrono::milliseconds usual);
  void adopt(std::shared_ptr<nccl::Group> group, const CommOptions& options);
  Candidates& candidates() const;
  nccl::GroupSetup setup(const CommOptions& options,
                         std::shared_ptr<nccl::OutOfBand> outOfBand) const;
  /// Enqueues what `put` puts on a stream, behind what `current` holds; returns null while that
  /// captures. `together`: all ranks do the same.
  std::shared_ptr<ctran::StreamOperation> enqueue(const ctran::EnqueueOptions& options,
                                                  nccl::Stream current, bool together,
                                                  const std::function<void(nccl::Stream)>& put);
  /// Issues an operation: `calls` calls the library, `after` puts more on the stream. `hold` makes
  /// what the work, or the graph, keeps.
  WorkPtr run(OpName op, Form form, bool async_op, const OpOptions& options,
              const std::function<void(const Issue&)>& calls,
              const std::function<void(nccl::Stream)>& after,
              const std::function<std::shared_ptr<void>()>& hold);
  /// Does what `run` does, and holds the tensors of the call, and `more`.
  template <typename Calls, typename... Kept>
  WorkPtr execute(const Call& call, Form form, const Calls& calls, const Kept&... more);
  /// Does what `execute` does, and puts more on the stream afterwards.
  template <typename Calls, typename After, typename... Kept>
  WorkPtr executeThen(const Call& call, Form form, const Calls& calls, const After& after,
                      const Kept&... more);
  /// Does what `execute` does, for `calls(issue, element, redOp)` that reduce tensors like
  /// `example`.
  template <typename Calls, typename... Kept>
  WorkPtr executeReduction(const Call& call, Form form, const at::Tensor& example,
                           const Calls& calls, const Kept&... more);

  WorkPtr gatherLists(const Call& call);
  WorkPtr reduceScatter(const Call& call, const at::Tensor& input);
  WorkPtr exchangeMessages(const Call& call);
  WorkPtr exchangeParts(const Call& call);
  WorkPtr allToAll(const Call& call);
  WorkPtr scatterParts(const Call& call);
  WorkPtr gatherParts(const Call& call);
  static at::Tensor sourceOf(const Call& call);

  const nccl::Vendor& vendor_;
  const nccl::Library* library_ = nullptr;
  std::string version_;
  ctran::Replaceable<std::shared_ptr<nccl::Group>> group_;  ///< null: it has no members yet
  mutable std::unique_ptr<Candidates> candidates_;          ///< made when asked for
  at::Tensor barrierWord_;
  std::map<const at::TensorImpl*, void*> registered_;  ///< the library's handles
  uint64_t splits_ = 0;
  uint64_t windows_ = 0;
};

}  // namespace torch::comms
