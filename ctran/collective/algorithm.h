#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <variant>

#include "ctran/base/collective_kind.h"
#include "ctran/collective/task.h"
#include "ctran/gpu/driver.h"

namespace ctran {

struct Collective;
class GpuContext;
class GpuHostsCall;
class HostMap;
class HostsContext;
class NetContext;
class ShmContext;

/// What the GPUs of a communicator can do, as all ranks know it.
struct GpuLimits {
  size_t slotBytes = 0;  ///< bytes of the packets that one rank can hold for another
  /// Bytes of the lines that one rank can hold for another; 0: not all links carry lines whole.
  size_t lineBytes = 0;
  bool throughHost = false;  ///< data goes through the host's memory
};

/// What all ranks know alike of a call, and of where they are. Algorithms are chosen by this alone.
struct AlgorithmQuery {
  CollectiveKind kind{};
  size_t bytes = 0;         ///< bytes that a rank contributes, see contributionBytes
  int size = 1;             ///< number of ranks
  int sharing = 1;          ///< number of ranks that share the network of a host
  bool partialSums = true;  ///< sums of partial sums are as good as sums, see toleratesPartialSums
  const HostMap* map = nullptr;     ///< how the ranks are spread over hosts; null: all are on one
  const GpuLimits* gpus = nullptr;  ///< null: the tensors are the CPU's
  bool reachesGpus = false;         ///< the network reaches the GPUs' memory, see stageOnRail
  size_t element = 1;               ///< GPUs: bytes of what a reduction's kernel reduces
  size_t largest = 0;               ///< GPUs: bytes of the largest block

  /// The bytes of all blocks together, of one block, and of all blocks but a rank's own, where
  /// there are blocks.
  double all() const { return static_cast<double>(bytes) * (isDivided() ? 1 : size); }
  double block() const { return all() / size; }
  double others() const { return all() - block(); }

 private:
  bool isDivided() const {
    return kind == CollectiveKind::ReduceScatter || kind == CollectiveKind::ReduceScatterV ||
           kind == CollectiveKind::Scatter || kind == CollectiveKind::AllToAll;
  }
};

class CollectiveKinds {
 public:
  constexpr CollectiveKinds(std::initializer_list<CollectiveKind> kinds) {
    for (const CollectiveKind kind : kinds) bits_ |= bitOf(kind);
  }
  constexpr bool has(CollectiveKind kind) const { return (bits_ & bitOf(kind)) != 0; }

 private:
  static constexpr uint32_t bitOf(CollectiveKind kind) {
    return uint32_t{1} << static_cast<uint32_t>(kind);
  }
  uint32_t bits_ = 0;
};

/// Where an algorithm runs. `SharedMemory`: among the ranks of one host. `Network`: among any
/// ranks, by messages. `Hosts`: among the ranks of several hosts, by shared memory inside and
/// messages between them. `Gpus`: on GPUs that reach each other's memory. `GpuHosts`: on GPUs of
/// several such domains, by kernels inside and messages between them.
enum class AlgorithmPlace { SharedMemory, Network, Hosts, Gpus, GpuHosts };

/// The sizes for which an algorithm was the fastest when it was measured, and the size of the call.
/// All three are counted as the algorithm counts bytes, for example as what its packets take.
struct SizeRange {
  size_t bytes = 0;
  size_t from = 0;
  size_t upTo = std::numeric_limits<size_t>::max();

  bool holds() const { return bytes >= from && bytes <= upTo; }
  size_t width() const { return upTo - from; }
  std::string text() const;  ///< "up to 4096 bytes"
};

/// Where an operation on a GPU goes.
/// `sharesGpu`: other kernels may run at the same time. They lose less if this one takes all of a
/// few multiprocessors than if it takes a part of many. Alone, a kernel is faster on many.
/// `timeout`: the longest wait inside a kernel, replays included; 0: the communicator's.
/// `blocks` and `threads`: the most blocks that a kernel takes, and the threads of each; 0 leaves
/// it to the algorithm. All ranks pass the same.
struct GpuTarget {
  gpu::Stream stream = nullptr;
  bool sharesGpu = false;
  std::chrono::nanoseconds timeout{0};
  uint32_t blocks = 0;
  uint32_t threads = 0;
};

using ShmAlgorithm = Task (*)(ShmContext&, const Collective&);
using NetAlgorithm = Task (*)(NetContext&, const Collective&);
using HostsAlgorithm = Task (*)(HostsContext&, const Collective&);
/// Puts the operation on a stream.
using GpuAlgorithm = void (*)(GpuContext&, const Collective&, const GpuTarget&);
using GpuHostsAlgorithm = void (*)(GpuHostsCall&, const Collective&);

/// An algorithm, declared beside its code: each file collective/COLLECTIVE/PLACE/NAME.cpp defines a
/// function `Algorithm algorithms::collectivePlaceName()`, and the build makes the registry from
/// these names.
struct Algorithm {
  std::string_view name;
  CollectiveKinds kinds;
  /// The alternatives are in the order of AlgorithmPlace.
  std::variant<ShmAlgorithm, NetAlgorithm, HostsAlgorithm, GpuAlgorithm, GpuHostsAlgorithm> run;
  /// The cost model: returns microseconds. It is not used on GPUs of one domain.
  double (*micros)(const AlgorithmQuery&) = nullptr;
  /// Returns why the algorithm cannot serve a call; empty if it can.
  std::string (*whyNot)(const AlgorithmQuery&) = [](const AlgorithmQuery&) {
    return std::string();
  };
  bool sumsPartially = false;  ///< it passes on partial sums
  bool readsPeers = false;     ///< ranks read the memory of other processes
  /// Used on GPUs instead of the cost model: among the algorithms whose range holds, the one with
  /// the narrowest range is chosen. Null: the algorithm is used only if somebody names it.
  SizeRange (*sizes)(const AlgorithmQuery&) = nullptr;
  /// Used on GPUs: does what the first call of its kind needs, such as compiling, unless it has
  /// been done.
  void (*prepare)(GpuContext&, const Collective&) = nullptr;
  bool preparesTogether = false;  ///< `prepare` waits for the other ranks

  AlgorithmPlace place() const { return static_cast<AlgorithmPlace>(run.index()); }
};

}  // namespace ctran
