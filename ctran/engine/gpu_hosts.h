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

/// GpuHosts serves ranks whose GPUs are in several domains: on several hosts, or more than eight on
/// one host. Inside a domain kernels move data (GpuDomain). Between domains the network moves it,
/// on the thread of a HostProxy, to which streams hand work: so calls return at once, and captured
/// operations are replayed without a call. The data goes through memory of the host or, where RDMA
/// devices reach the GPUs, through theirs (GpuDirect).
///
/// The ranks meet through `control`, which also knows who has failed. Two more communicators have
/// these ranks: one per domain, which is the control of that domain, and one of all ranks, in which
/// each domain counts as a host, so that its rails are one rank of each domain. Only the proxy's
/// thread uses the latter.
///
/// Threads: as GpuDomain.
class GpuHosts final : public Explainer {
 public:
  /// Returns whether the ranks of a communicator are in several domains.
  static bool areFor(const Communicator& control);
  /// Creates the object. Collective over the ranks of `control`, which outlives this. Throws what
  /// GpuDomain::create throws, and Error(Unsupported) if the driver cannot make streams wait for
  /// the host.
  static std::unique_ptr<GpuHosts> create(Communicator& control, int device, WaitHooks* hooks,
                                          GpuFallback fallback);

  ~GpuHosts() override;
  GpuHosts(const GpuHosts&) = delete;
  GpuHosts& operator=(const GpuHosts&) = delete;

  GpuDomain& domain() { return *domain_; }

  /// Launches a collective as GpuDomain::launch does. `timeout` is that of the operation, which
  /// began now. `kept` is set to what a graph has to keep.
  uint64_t launch(const Collective& collective, const GpuTarget& target,
                  std::chrono::milliseconds timeout, std::shared_ptr<void>& kept);
  void launchMessages(std::span<const Collective> messages, const GpuTarget& target,
                      std::chrono::milliseconds timeout, std::shared_ptr<void>& kept);

  Explanation explain(CollectiveKind kind, size_t bytes, DataType type,
                      const CallHints* hints) const override;
  void prepareCall(CollectiveKind kind, size_t bytes, DataType type, ReduceKind op,
                   std::shared_ptr<const CallHints> hints) override;

  void setTimeout(std::chrono::nanoseconds timeout);
  /// Leaves the network: a rank that still needs this one gets an error that names it. Called after
  /// the last operation, if no graph holds one.
  void leave() { network_->leave(); }
  bool hasFailed() const;
  /// Returns what has gone wrong on any rank, if something has. Never blocks.
  std::optional<Error> trouble();
  /// Breaks the communicator on all ranks; kernels and what the proxy runs end.
  void fail(const Error& error);
  /// Returns whether, for an operation that is late, another party should report first, because it
  /// may know better who is to blame. `late` is the time since the deadline.
  bool othersSpeakFirst(uint64_t number, std::chrono::nanoseconds late) const;

 private:
  class Call;

  GpuHosts(Communicator& control, int device);
  void connect(WaitHooks* hooks, GpuFallback fallback);
  std::shared_ptr<gpu::MappedHostMemory> staging(size_t bytes);
  /// Calls `body(call)`, ordered on the streams behind what came before and ahead of what comes
  /// after.
  template <class Body>
  void compose(const GpuTarget& target, std::chrono::milliseconds timeout,
               std::shared_ptr<void>& kept, const Body& body);

  Communicator& control_;
  const int device_;
  std::shared_ptr<Communicator> near_;  ///< the control of the domain
  std::unique_ptr<GpuDomain> domain_;
  std::shared_ptr<Communicator> network_;
  std::shared_ptr<GpuDirect> direct_;
  std::string whyNotDirect_;
  std::optional<Selector> selector_;
  size_t stepBytes_ = 0;  ///< the same on all ranks
  std::shared_ptr<gpu::MappedHostMemory> staging_;
  size_t stagingBytes_ = 0;
  std::vector<std::shared_ptr<void>> outgrown_;  ///< buffers that operations may still use
  std::optional<HostProxy> proxy_;
};

}  // namespace ctran
