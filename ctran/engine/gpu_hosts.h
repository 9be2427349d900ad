#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ctran/engine/communicator.h"
#include "ctran/engine/gpu_direct.h"
#include "ctran/engine/gpu_domain.h"
#include "ctran/engine/gpu_fallback.h"
#include "ctran/engine/named.h"
#include "ctran/gpu/memory.h"
#include "ctran/select/selector.h"
#include "ctran/stream/host_proxy.h"

namespace ctran {

/// Ranks whose GPUs are in several domains: on several hosts, or more than eight on one. Inside a
/// domain kernels move data (GpuDomain). Between domains the network does, on the thread of a
/// HostProxy, which streams hand work to: so calls return at once, and what is captured needs no
/// call to be replayed. It does so in memory of the host, or, where RDMA devices reach the GPUs,
/// in theirs (GpuDirect).
///
/// Besides `control`, through which the ranks meet and which knows who has failed, there are two
/// communicators among the same ranks: of the domain's ranks, the control of that; and of all,
/// which only the proxy's thread uses, and to which each domain is a host, so that its rails are
/// one rank of each domain.
///
/// Threads: as GpuDomain.
class GpuHosts final : public Explainer {
 public:
  /// Whether a communicator is one of several domains.
  static bool areFor(const Communicator& control);
  /// Collective over the ranks of `control`. Throws as GpuDomain::create, and Unsupported if the
  /// driver cannot have streams wait for the host.
  static std::shared_ptr<GpuHosts> create(std::shared_ptr<Communicator> control, int device,
                                          WaitHooks* hooks, GpuFallback fallback);

  ~GpuHosts() override;
  GpuHosts(const GpuHosts&) = delete;
  GpuHosts& operator=(const GpuHosts&) = delete;

  Communicator& control() { return *control_; }
  const std::shared_ptr<GpuDomain>& domain() const { return domain_; }

  /// As GpuDomain::launch. `timeout` is of the operation, which began now. What a graph has to keep
  /// goes to `kept`.
  uint64_t launch(const Collective& collective, const GpuTarget& target,
                  std::chrono::milliseconds timeout, std::shared_ptr<void>& kept);
  void launchMessages(std::span<const Collective> messages, const GpuTarget& target,
                      std::chrono::milliseconds timeout, std::shared_ptr<void>& kept);

  Explanation explain(CollectiveKind kind, size_t bytes, DataType type,
                      const CallHints* hints) const override;
  void prepareCall(CollectiveKind kind, size_t bytes, DataType type, ReduceKind op,
                   std::shared_ptr<const CallHints> hints) override;

  void setTimeout(std::chrono::nanoseconds timeout);
  /// Leaves the network: a rank that still needs this one gets an error that names it. After the
  /// last operation, if no graph has one.
  void leave() { network_->leave(); }
  bool hasFailed() const;
  /// What has gone wrong on any rank, if something has. Never blocks.
  std::optional<Error> trouble();
  /// Breaks the communicator on all ranks; kernels and what the proxy does end.
  void fail(const Error& error);
  /// Of an operation that has not ended in time: whether somebody else knows better who is to
  /// blame, for now. `late`: since then.
  bool othersSpeakFirst(uint64_t number, std::chrono::nanoseconds late) const;

 private:
  class Call;

  GpuHosts(std::shared_ptr<Communicator> control, int device);
  void connect(WaitHooks* hooks, GpuFallback fallback);
  std::shared_ptr<gpu::MappedHostMemory> staging(size_t bytes);
  /// `body(call)` between the order of streams before and after it.
  template <class Body>
  void compose(const GpuTarget& target, std::chrono::milliseconds timeout,
               std::shared_ptr<void>& kept, const Body& body);

  const std::shared_ptr<Communicator> control_;
  const int device_;
  std::shared_ptr<GpuDomain> domain_;
  std::shared_ptr<Communicator> network_;
  std::shared_ptr<GpuDirect> direct_;
  std::string whyNotDirect_;
  std::optional<Selector> selector_;
  size_t stepBytes_ = 0;  ///< the same on all ranks
  std::shared_ptr<gpu::MappedHostMemory> staging_;
  size_t stagingBytes_ = 0;
  std::vector<std::shared_ptr<void>> outgrown_;  ///< which operations may still use
  std::optional<HostProxy> proxy_;
};

}  // namespace ctran
