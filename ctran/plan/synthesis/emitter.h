#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "ctran/plan/builder.h"
#include "ctran/plan/synthesis/forest.h"

namespace ctran::plan {

/// A tree, and the chunks that go over it: towards the root or away from it.
struct Branches {
  int root;
  int chunk, count;                ///< of the root's piece
  std::vector<int> parent, depth;  ///< per rank
  std::vector<std::vector<int>> children;

  Branches(const Tree& tree, int ranks, int chunk, int count);
};

/// Trees for all that the ranks have, `chunks` each.
std::vector<Branches> branchesOf(const Forest& forest, int ranks, int chunks);

/// Writes the steps of plans that follow trees. Who handles what:
///
/// - A rank has a lane for each neighbour that it sends to at each depth of trees, so that links
///   and levels are busy beside each other; and one per level that copies into the output.
/// - A message lies in scratch of the receiver, in a place of its own, until all lanes that read it
///   have released it. Sender and reader share one channel for all messages between them: both go
///   through these level by level, and at each level tree by tree.
class Emitter {
 public:
  using Where = std::function<Place(int rank, const Branches& tree)>;

  explicit Emitter(Builder& builder) : b_(builder), lanes_(builder.ranks()) {}

  /// Towards the roots; each rank adds its own to what its children sent. `next` are the trees
  /// over which the results are sent on.
  void reduce(const std::vector<Branches>& trees, const Where& from, const Where& to,
              const std::vector<Branches>& next = {});

  /// Away from the roots. `reduced`: there is something to send when `reduce` has come to its end.
  void gather(const std::vector<Branches>& trees, const Where& from, const Where& to,
              bool reduced = false);

  /// In each copy of scratch, as many messages may be on their way as there are.
  void setCredits(Plan& plan) const;

 private:
  enum Phase { kReduce, kGather };
  enum Use { kData, kCredit, kResult };  // of channels
  static constexpr int kHere = -1;       // as a neighbour: the rank's own output

  struct Message {
    Place place;
    LaneId writer;
    std::vector<LaneId> readers;
  };

  LaneId laneTo(Phase phase, int rank, int neighbour, int depth);
  void write(Step& step, const Message& message);
  void read(Step& step, const Message& message, LaneId reader);

  Builder& b_;
  std::vector<std::map<std::tuple<Phase, int, int>, int>> lanes_;  // per rank
  std::map<int, int> messages_;                                    // per channel for credits
};

}  // namespace ctran::plan
