#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ctran/collective/exchange/persistent_copy.h"
#include "ctran/collective/gpu/context.h"
#include "ctran/collective/gpu/messages.h"
#include "ctran/collective/plan/gpu.h"
#include "ctran/collective/reduce_scatter/quantized.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/function_group.h"
#include "ctran/engine/gpu_fallback.h"
#include "ctran/engine/named.h"
#include "ctran/gpu/runtime.h"
#include "ctran/transport/nvlink/peer_memory.h"
#include "ctran/transport/nvlink/symmetric_memory.h"

namespace ctran {

/// Up to eight ranks of one host whose GPUs reach each other's memory, and the kernels that work
/// there. A communicator of the same ranks is their control: through it the ranks meet,
/// hand over memory, and learn of deaths and failures.
///
/// Operations go on any stream, and run in the order of the calls whichever streams they are on. A
/// registered plan serves a call if it can; else the algorithm that the selector chooses among
/// those of GPUs (collective/*/gpu). The first call that a plan or the copy engines serve waits
/// until all ranks have mapped each other's memory.
///
/// One thread at a time; `trouble`, `fail` and `stop` from any thread. GpuQueue adds what happens
/// after an operation has been put on a stream.
class GpuDomain final : public Explainer {
 public:
  /// Collective over the ranks of `control`, which outlives this; each names its device.
  /// Throws Error on all ranks alike: Unsupported if some GPU cannot reach another's memory and
  /// some rank has no fallback. `names`: what errors call the ranks, where they are a part of a
  /// communicator (GpuHosts), whose calls alone can be explained then.
  static std::unique_ptr<GpuDomain> create(Communicator& control, int device,
                                           WaitHooks* hooks = nullptr,
                                           GpuFallback fallback = GpuFallback::HostMemory,
                                           std::vector<int> names = {});
  ~GpuDomain() override;
  GpuDomain(const GpuDomain&) = delete;
  GpuDomain& operator=(const GpuDomain&) = delete;

  int device() const { return device_; }
  size_t memoryBytes() const { return memory_.scratchBytes(); }
  /// Two ranks with one GPU, if there are.
  std::optional<std::pair<int, int>> sharedGpu() const { return sharedGpu_; }
  /// Whether data goes through the host's memory.
  bool isThroughHost() const { return memory_.isThroughHost(); }
  /// Of a kernel; covers replays of graphs, whose ends nobody else watches.
  void setTimeout(std::chrono::nanoseconds timeout);

  /// Puts a collective on `stream`, which may be capturing; returns its number. The device is
  /// current. Throws Error(InvalidArgument), or what the driver says. `hooks` as for
  /// Communicator::run.
  uint64_t launch(const Collective& collective, const GpuTarget& target,
                  WaitHooks* hooks = nullptr);
  /// The same of a reduce-scatter whose contributions travel as bf16.
  uint64_t launchQuantized(const Collective& collective, const Quantization& quantization,
                           const GpuTarget& target);
  /// Counts a collective of a larger communicator, which is made of what is launched next; returns
  /// its number. Ranks that call something else are found out by it.
  uint64_t announce(const Collective& collective);
  /// Has `stream` wait for all operations so far, or lets it be waited for: what belongs to one
  /// operation is between two calls of this.
  void order(gpu::Stream stream, bool before);
  /// Whether all operations have ended that were not captured.
  bool isIdle() const { return !any_ || runtime_.isReached(last_.get()); }
  /// The ranks that have not called the collective of that number.
  std::vector<int> missing(uint64_t number) const;
  /// Sends and receives, which run at the same time.
  void launchMessages(std::span<const Collective> messages, const GpuTarget& target);

  /// Before all-gathers or all-to-alls into `output`, again and again: collective. If every rank's
  /// output is symmetric memory and the copy engines are to write it (by default where blocks are
  /// large), what calls have as Collective::persistent from then on; else null on all ranks. Waits
  /// for the other ranks, which may have to map the outputs first.
  std::shared_ptr<PersistentCopy> prepare(CollectiveKind kind, std::byte* output, size_t bytes,
                                          std::chrono::nanoseconds timeout, WaitHooks* hooks);

  Explanation explain(CollectiveKind kind, size_t bytes, DataType type,
                      const CallHints* hints) const override;

  /// Compiles, loads and allocates what the first call of its kind would. Collective, between two
  /// calls; waits for the other ranks if that call would.
  void prepareCall(CollectiveKind kind, size_t bytes, DataType type, ReduceKind op,
                   std::shared_ptr<const CallHints> hints) override;

  void force(const std::string& algorithm) override;
  TuningTable use(TuningTable table) override;

  /// Whether something has gone wrong on any rank, or this rank's kernels have been told to end.
  bool hasFailed() const;
  /// What has gone wrong on any rank, if something has. Never blocks.
  std::optional<Error> trouble();
  /// The error of an operation (number 0: sends and receives) that has not ended in time: ends this
  /// rank's kernels, and says who was waited for.
  Error timedOut(const std::string& what, uint64_t number, std::chrono::milliseconds timeout);
  /// If a rank has left without calling the collective of that number: that.
  std::optional<Error> leftWithout(uint64_t number) const;
  /// Maps what other ranks have registered meanwhile; by the watchdog, now and then. Never throws.
  void shareMemory();
  /// Waits, for half a minute at most, until the other ranks have mapped the symmetric memory that
  /// holds that range, if any does, instead of at some time after its first use.
  void registerMemory(const void* address, size_t bytes);
  /// The same of a collective's input and output, once for each memory and some seconds at most.
  /// Says so once if one of them is not symmetric memory.
  void awaitMappings(const Collective& collective);
  /// Breaks the communicator on all ranks, and ends their kernels.
  void fail(const Error& error);
  /// Ends this rank's kernels, and all that come.
  void stop();

 private:
  struct Introduction;
  GpuDomain(Communicator& control, int device, std::vector<int> names);
  int nameOf(int rank) const { return names_.empty() ? rank : names_[static_cast<size_t>(rank)]; }
  std::vector<int> named(std::vector<int> ranks) const;
  template <class Step>
  std::vector<Introduction> agree(WaitHooks* hooks, const Step& step);
  void connect(GpuFallback fallback, WaitHooks* hooks);
  void share(WaitHooks* hooks);
  void probe();
  void begin(const GpuTarget& target);
  uint64_t issue(const Collective& collective, const GpuTarget& target, WaitHooks* hooks);
  const std::string* wantedFor(CollectiveKind kind, const CallHints* hints) const;
  void prepareWanted();
  std::string tunedMachine() const;
  void launchNative(const Collective& collective, const GpuTarget& target);
  GpuPlan& setUpPlan(const Collective& collective, uint32_t blocks, WaitHooks* hooks);
  FunctionGroup& setUpFunctions(std::chrono::nanoseconds timeout, WaitHooks* hooks);
  void launchFunction(const Collective& collective, const GpuTarget& target, WaitHooks* hooks);
  std::shared_ptr<FunctionGroup> functions() const {
    const std::lock_guard lock(functionsMutex_);
    return functions_;
  }
  std::unique_ptr<CopyEngines> makeCopies();
  template <class Part, class Make>
  std::unique_ptr<Part> setUp(const char* variable, WaitHooks* hooks, const Make& make);
  std::optional<Error> mismatch();
  std::optional<Error> functionTrouble() const;
  Error refused(const device::Refusal& refusal) const;
  std::vector<int> awaitedByKernels(int rank) const;

  Communicator& control_;
  const int device_;
  const std::vector<int> names_;  ///< of the ranks; empty: their numbers
  const gpu::Runtime& runtime_;
  PeerMemory memory_;
  SymmetricMemory symmetric_;
  std::optional<std::pair<int, int>> sharedGpu_;
  bool lines_ = false;   ///< whether the links are known to carry lines whole
  uint32_t blocks_ = 1;  ///< multiprocessors that a kernel takes at most, the same on all ranks
  std::optional<GpuContext> context_;
  std::optional<Selector> selector_;
  /// By the hash of the plan, the root and the blocks. Graphs may have kernels of them: they stay.
  std::map<std::tuple<uint64_t, int, uint32_t>, std::unique_ptr<GpuPlan>> plans_;
  StagingMemory staging_;
  mutable std::mutex functionsMutex_;
  std::shared_ptr<FunctionGroup> functions_;  ///< guarded by it; changed by the launching thread
  const Preferences user_;
  WaitHooks* hooks_ = nullptr;  ///< of the call that is being issued
  std::optional<PersistentCopies> persistent_;
  std::shared_ptr<gpu::EventPool> events_;
  gpu::PooledEvent last_;  ///< behind the last operation that was not captured
  gpu::Stream lastStream_ = nullptr;
  bool any_ = false;
  bool toldOfMemory_ = false;
  uint64_t signature_ = 0;
};

}  // namespace ctran
