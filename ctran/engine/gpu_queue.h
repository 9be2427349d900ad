#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/collective/collective.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/gpu_fallback.h"
#include "ctran/stream/replays.h"
#include "ctran/stream/stream_queue.h"

namespace ctran {

class GpuDomain;
class GpuHosts;
struct Quantization;

struct GpuOptions {
  int device = 0;  ///< the GPU of this rank, as the driver numbers them
  GpuFallback fallback = GpuFallback::HostMemory;
  bool highPriority = false;        ///< priority of the communicator's own stream
  bool freesInStreamOrder = false;  ///< see StreamQueueOptions
  std::shared_ptr<ErrorObserver> observer = std::make_shared<ErrorObserver>();
};

struct EnqueueOptions {
  /// How errors call the operation, in text that lives as long as the process; by default it is the
  /// name of the collective.
  std::string_view name = {};
  std::chrono::milliseconds timeout{0};  ///< 0: the communicator's
  /// Runs the operation on the communicator's own stream, behind what the caller's stream holds by
  /// then, and leaves room on the GPU for other kernels.
  bool aside = false;
  /// Runs the operation on a stream of the highest priority, behind what the caller's stream holds;
  /// that one waits for it, except with `aside`. Makes no difference while it captures.
  bool highPriority = false;
  uint32_t blocks = 0, threads = 0;  ///< as GpuTarget has them
  bool symmetric = false;            ///< see GpuDomain::awaitMappings
  /// Makes what owns the buffers, which lives until the operation has ended. In a capture, as long
  /// as the graph.
  std::function<std::shared_ptr<void>()> keepAlive = {};
};

/// The operations of a communicator on streams. Its ranks each have a GPU, in one domain or
/// several.
///
/// A call returns at once, whatever the stream still holds. Operations run in the order of the
/// calls, on all streams. Each has a deadline. An operation that is late, a dead rank, an abort or
/// ranks that call different things break the communicator on all ranks: kernels end, and waits and
/// every later call throw the error. If the program drops a communicator, its operations go on
/// running.
///
/// While a stream captures, what is enqueued on it becomes part of the graph. All ranks replay the
/// same graphs in the same order.
///
/// One thread at a time enqueues; see StreamQueue for the rest. The communicator owns the queue,
/// and operations and graphs own the communicator.
class GpuQueue final : public StreamQueue {
 public:
  /// Creates the queue of a communicator. Collective. Throws what GpuDomain::create throws.
  static std::unique_ptr<GpuQueue> create(Communicator& communicator, const GpuOptions& options,
                                          WaitHooks* hooks);
  GpuQueue(Communicator& communicator, StreamQueueOptions options);
  ~GpuQueue() override;

  /// Moves data among the ranks of this one's domain (gpu_domain.h).
  GpuDomain& domain() { return *domain_; }
  /// Returns whether there are several domains (gpu_hosts.h).
  bool spansDomains() const { return hosts_ != nullptr; }

  /// Enqueues a collective behind what `stream` holds. Returns null while the stream captures: a
  /// replay of its graph has no work. Throws Error(InvalidArgument) if the call is wrong, and the
  /// error of a broken communicator. `hooks` are as for Communicator::run; the first call of a kind
  /// waits for the other ranks.
  std::shared_ptr<StreamOperation> enqueue(const Collective& collective, gpu::Stream stream,
                                           const EnqueueOptions& options = {},
                                           WaitHooks* hooks = nullptr);
  /// Enqueues sends and receives, which run at the same time; otherwise as `enqueue`.
  std::shared_ptr<StreamOperation> enqueueMessages(std::span<const Collective> messages,
                                                   gpu::Stream stream,
                                                   const EnqueueOptions& options = {});
  /// Enqueues a reduce-scatter whose contributions travel as bf16; otherwise as `enqueue`.
  std::shared_ptr<StreamOperation> enqueueQuantized(const Collective& collective,
                                                    const Quantization& quantization,
                                                    gpu::Stream stream,
                                                    const EnqueueOptions& options = {});
  /// Enqueues what `launch` puts on the stream that it is given. The operation cannot end without
  /// the ranks `awaited`, if there are any; `options` names it.
  std::shared_ptr<StreamOperation> enqueueWork(const std::function<void(gpu::Stream)>& launch,
                                               std::vector<int> awaited, gpu::Stream stream,
                                               const EnqueueOptions& options);

  /// Says what would serve a call, as Communicator::explain does.
  Explanation explain(CollectiveKind kind, size_t bytes, DataType type,
                      const CallHints* hints) const;

  void setTimeout(std::chrono::nanoseconds timeout);
  /// Leaves what joins the domains: a rank that still needs this one gets an error that names it.
  /// No operation may come afterwards, except those of graphs.
  void leave();

  std::shared_ptr<StreamQueue> share() override;
  bool inspect() override;
  bool isSound() const override;
  void diagnose() override;

 private:
  using Launch = std::function<uint64_t(gpu::Stream, std::chrono::milliseconds timeout,
                                        std::shared_ptr<void>& kept)>;

  /// Calls `launch`, which puts work on a stream and returns the number of the collective, or 0 if
  /// it is none. `kept` is what a graph that captures the work has to keep.
  std::shared_ptr<StreamOperation> issue(std::string_view name, const Launch& launch,
                                         gpu::Stream stream, const EnqueueOptions& options,
                                         std::vector<int> awaited = {});
  void endKernels() override;
  void lookAtDeadlines();
  void lookForLeft();
  void lookAtReplays();
  std::optional<std::string_view> replayed() override;
  [[nodiscard]] Error lateSignal(std::string_view op, const std::string& what,
                                 std::chrono::milliseconds timeout, std::vector<int> ranks) const;

  Communicator& communicator_;
  std::unique_ptr<GpuHosts> hosts_;        ///< null: there is one domain
  std::unique_ptr<GpuDomain> onlyDomain_;  ///< null: there are several
  GpuDomain* domain_ = nullptr;
  /// The replays of operations with `awaited` ranks, and of all that are captured while replays are
  /// recorded. Kernels of the domain end by themselves when they are late.
  Replays replays_;
};

}  // namespace ctran
