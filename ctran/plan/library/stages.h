#pragma once

#include <functional>
#include <vector>

#include "ctran/plan/builder.h"

namespace ctran::plan {

/// One stage of a plan: a team of ranks, in which member i is responsible for piece i of the data.
/// A piece is so many chunks as `chunks`, next to each other.
struct Stage {
  Builder& builder;
  std::vector<int> team;  ///< ranks
  int lane = 0;
  int chunks = 1;                                  ///< of a piece
  int use = 0;                                     ///< of links; another one for each stage
  std::function<Place(int rank, int piece)> from;  ///< where a rank has the piece
  std::function<Place(int rank, int piece)> to;    ///< where it is to have it

  int size() const { return static_cast<int>(team.size()); }
  int member(int i) const { return team[((i % size()) + size()) % size()]; }
  int piece(int i) const { return ((i % size()) + size()) % size(); }
  Link& link(int fromMember, int toMember) const {
    return builder.link({member(fromMember), lane}, {member(toMember), lane}, chunks, use);
  }
  Step& step(int i) const { return builder.step({member(i), lane}); }
};

/// Piece i of all members, reduced, ends at member i. Around the ring, size - 1 steps; each member
/// sends and receives (size - 1) / size of the data. `direction` is 1 or -1.
void ringReduceScatter(const Stage& stage, int direction = 1);
/// Piece i, which member i has, ends at all. Steps and bytes as above.
void ringAllGather(const Stage& stage, int direction = 1);

/// The same in one step: every member puts every piece where it belongs; a member reduces the
/// pieces that it got in the order of the team.
void directReduceScatter(const Stage& stage);
/// The same in one step: every member puts its piece into all others.
void directAllGather(const Stage& stage);

}  // namespace ctran::plan
