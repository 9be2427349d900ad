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
  size_t slotBytes = 0;      ///< of the packets that one rank has for another
  size_t lineBytes = 0;      ///< the same of lines; 0: not all links carry lines whole
  bool throughHost = false;  ///< data goes through the host's memory
};

/// What all ranks know alike of a call, and of where they are, when they choose an algorithm.
struct AlgorithmQuery {
  CollectiveKind kind{};
  size_t bytes = 0;                 ///< that a rank contributes, see contributionBytes
  int size = 1;                     ///< ranks
  int sharing = 1;                  ///< of them, those that share the network of a host
  bool partialSums = true;          ///< sums of partial sums are as good as sums
  const HostMap* map = nullptr;     ///< how they are spread over hosts; null: all on one
  const GpuLimits* gpus = nullptr;  ///< null: the tensors are the CPU's
  bool reachesGpus = false;         ///< the network does, in their memory, see stageOnRail
  size_t element = 1;               ///< of GPUs: bytes of what a reduction's kernel reduces
  size_t largest = 0;               ///< of GPUs: bytes of the largest block

  /// Of all blocks together, of one, and of all others than a rank's own, where there are blocks.
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

/// Where an algorithm runs: among the ranks of a host that share memory; among any ranks, by
/// messages; among the ranks of several hosts, by shared memory inside and messages between them;
/// on GPUs that reach each other's memory; on GPUs of several such domains, by kernels inside and
/// messages between them.
enum class AlgorithmPlace { SharedMemory, Network, Hosts, Gpus, GpuHosts };

/// Sizes for which an algorithm was the fastest when it was measured, and what a call has, all as
/// the algorithm counts bytes: what its packets take, for one.
struct SizeRange {
  size_t bytes = 0;
  size_t from = 0;
  size_t upTo = std::numeric_limits<size_t>::max();

  bool holds() const { return bytes >= from && bytes <= upTo; }
  size_t width() const { return upTo - from; }
  std::string text() const;  ///< "up to 4096 bytes"
};

/// Where an operation on a GPU goes. `sharesGpu`: other kernels may run at the same time, and lose
/// less when it takes all of a few multiprocessors than a part of many. Alone it is faster on many.
/// `timeout`: the longest wait inside a kernel, replays included; 0: the communicator's.
/// `blocks` and `threads`: how many a kernel takes at most, and how many each of them has; 0: as
/// the algorithm likes. The same on all ranks.
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

/// An algorithm, as it stands beside its code: each file collective/COLLECTIVE/PLACE/NAME.cpp
/// defines a function `Algorithm algorithms::collectivePlaceName()`, from whose name the build
/// makes the registry.
struct Algorithm {
  std::string_view name;
  CollectiveKinds kinds;
  /// In the order of places.
  std::variant<ShmAlgorithm, NetAlgorithm, HostsAlgorithm, GpuAlgorithm, GpuHostsAlgorithm> run;
  /// The cost model: microseconds. Not on GPUs of one domain.
  double (*micros)(const AlgorithmQuery&) = nullptr;
  /// Why it cannot serve a call; empty if it can.
  std::string (*whyNot)(const AlgorithmQuery&) = [](const AlgorithmQuery&) {
    return std::string();
  };
  bool sumsPartially = false;  ///< it passes on partial sums
  bool readsPeers = false;     ///< ranks read the memory of other processes
  /// On GPUs, instead of the cost model: of those whose range holds, the one with the narrowest is
  /// chosen. Null: it has to be named.
  SizeRange (*sizes)(const AlgorithmQuery&) = nullptr;
  /// On GPUs: does what the first call of its kind needs, such as compiling, if it has not been
  /// done.
  void (*prepare)(GpuContext&, const Collective&) = nullptr;
  bool preparesTogether = false;  ///< in which it waits for the other ranks

  AlgorithmPlace place() const { return static_cast<AlgorithmPlace>(run.index()); }
};

}  // namespace ctran
