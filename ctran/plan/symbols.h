#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ctran::plan {

/// Data that is not computed but remembered: which chunk of which rank's input it is, or which data
/// it was reduced from, in which order. Equal data has equal numbers, so that comparing is cheap.
class Symbols {
 public:
  using Id = uint32_t;
  static constexpr Id kNothing = 0;  ///< what memory holds before anybody writes to it

  Symbols() : nodes_(1) {}

  /// Chunk `chunk` of the input of `rank`, in that execution.
  Id input(int execution, int rank, int chunk);
  /// `parts` reduced in one go, in that order. None is kNothing.
  Id reduction(const std::vector<Id>& parts);

  struct Leaf {
    int execution, rank, chunk;
    auto operator<=>(const Leaf&) const = default;
  };
  /// The inputs that make it up, sorted, as often as they occur, up to 65,536.
  const std::vector<Id>& leavesOf(Id id) const { return nodes_[id].leaves; }
  const Leaf& leaf(Id id) const { return nodes_[id].leaf; }

  /// Whether it was reduced in one go, or is an input.
  bool isFlat(Id id) const;
  /// Whether it is ((a + b) + c) + ... in the order of the ranks, each once.
  bool isInRankOrder(Id id) const;

  /// "(0[2] + 1[2]) + 2[2]": rank and chunk of inputs.
  std::string toText(Id id) const;

 private:
  struct Node {
    std::vector<Id> parts;  // of a reduction
    std::vector<Id> leaves;
    Leaf leaf{};
  };
  bool collectLeftFold(Id id, std::vector<Id>& order) const;

  std::vector<Node> nodes_;
  std::map<Leaf, Id> inputs_;
  std::map<std::vector<Id>, Id> reductions_;
};

}  // namespace ctran::plan
