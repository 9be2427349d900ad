// A collective to be called by all ranks with data that tells rank and position, and what has to
// come out of it, by other means than the engine uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ctran/collective/collective.h"

namespace ctran::testing {

uint64_t mix(uint64_t x);

/// One call, as all ranks agree on it.
struct Case {
  CollectiveKind kind = CollectiveKind::AllReduce;
  DataType type = DataType::Float32;
  ReduceOp op;  ///< PremulSum: the rank's factor is `factorOf`
  int root = 0;
  size_t count = 0;  ///< of a block; of the largest block for the v forms
  bool inPlace = false;
  bool listed = false;  ///< blocks listed one by one instead of contiguous, where there is a choice
  bool posted = false;  ///< post and wait instead of run
  size_t misalignment = 0;  ///< bytes from an aligned address; ranks differ
  uint64_t seed = 0;
  bool whole = false;  ///< numbers of which sums and products are exact, whatever their order

  std::string describe() const;
};

/// All but messages.
inline constexpr CollectiveKind kKinds[] = {
    CollectiveKind::Barrier,       CollectiveKind::Broadcast,      CollectiveKind::AllReduce,
    CollectiveKind::Reduce,        CollectiveKind::AllGather,      CollectiveKind::AllGatherV,
    CollectiveKind::ReduceScatter, CollectiveKind::ReduceScatterV, CollectiveKind::Scatter,
    CollectiveKind::Gather,        CollectiveKind::AllToAll,       CollectiveKind::AllToAllV};

bool reduces(CollectiveKind kind);
bool isRooted(CollectiveKind kind);
bool isV(CollectiveKind kind);

double factorOf(const Case& c, int rank);

/// Elements that `from` has for `to`, in the collectives where blocks belong to pairs, and of the
/// block of rank `from` where they belong to ranks.
size_t countOf(const Case& c, int from, int to);

/// The blocks that a rank passes in, each as its own bytes; empty for one that passes none.
std::vector<std::vector<std::byte>> inputsOf(const Case& c, int rank, int size);

/// Inputs of all ranks: inputs[rank][block].
using Inputs = std::vector<std::vector<std::vector<std::byte>>>;

/// The blocks that a rank has to have in the end; empty for one that gets none.
std::vector<std::vector<std::byte>> expectedOf(const Case& c, int rank, int size,
                                               const Inputs& inputs);

/// Where the data is not as expected: the same bits, or NaNs where NaNs are expected.
std::string difference(DataType type, const std::byte* data,
                       const std::vector<std::byte>& expected);

/// The memory of one rank for one call: inputs, poisoned outputs, and guards around both.
class Buffers {
 public:
  Buffers(const Case& c, int rank, int size, const std::vector<std::vector<std::byte>>& inputs);

  const Collective& collective() const { return collective_; }

  /// The blocks of the output.
  std::vector<std::vector<std::byte>> outputs() const;

  /// What is wrong: outputs that differ from `expected`, inputs that were modified, bytes beyond
  /// the ends. Empty if nothing is.
  std::string check(const std::vector<std::vector<std::byte>>& expected) const;

 private:
  /// Blocks side by side, or apart from each other, with guards before and behind each region.
  struct Region {
    std::vector<std::byte> storage;
    std::vector<std::byte*> blocks;
    std::vector<size_t> sizes;  // bytes

    void allocate(const std::vector<size_t>& sizes, bool apart, size_t misalignment);
    std::string damage() const;
  };

  struct Span {
    std::byte* data;
    size_t bytes;
  };

  DataType type_;
  Collective collective_;
  std::vector<std::vector<std::byte>> inputData_;
  Region input_, output_;  // in place there is only the output
  std::vector<Span> inputs_, outputs_;
};

}  // namespace ctran::testing
