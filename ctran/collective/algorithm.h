#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

#include "ctran/base/collective_kind.h"
#include "ctran/collective/task.h"

namespace ctran {

struct Collective;
class HostMap;
class HostsContext;
class NetContext;
class ShmContext;

/// What all ranks know alike of a call, and of where they are, when they choose an algorithm.
struct AlgorithmQuery {
  CollectiveKind kind{};
  size_t bytes = 0;              ///< that a rank contributes, see contributionBytes
  int size = 1;                  ///< ranks
  int sharing = 1;               ///< of them, those that share the network of a host
  bool partialSums = true;       ///< sums of partial sums are as good as sums
  const HostMap* map = nullptr;  ///< how they are spread over hosts; null: all on one

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
/// messages; among the ranks of several hosts, by shared memory inside and messages between them.
enum class AlgorithmPlace { SharedMemory, Network, Hosts };

using ShmAlgorithm = Task (*)(ShmContext&, const Collective&);
using NetAlgorithm = Task (*)(NetContext&, const Collective&);
using HostsAlgorithm = Task (*)(HostsContext&, const Collective&);

/// An algorithm, as it stands beside its code: each file collective/COLLECTIVE/PLACE/NAME.cpp
/// defines a function `Algorithm algorithms::collectivePlaceName()`, from whose name the build
/// makes the registry.
struct Algorithm {
  std::string_view name;
  CollectiveKinds kinds;
  std::variant<ShmAlgorithm, NetAlgorithm, HostsAlgorithm> run;  ///< in the order of places
  /// The cost model: microseconds.
  double (*micros)(const AlgorithmQuery&);
  /// Why it cannot serve a call; empty if it can.
  std::string (*whyNot)(const AlgorithmQuery&) = [](const AlgorithmQuery&) {
    return std::string();
  };
  bool sumsPartially = false;  ///< it passes on partial sums
  bool readsPeers = false;     ///< ranks read the memory of other processes

  AlgorithmPlace place() const { return static_cast<AlgorithmPlace>(run.index()); }
};

}  // namespace ctran
