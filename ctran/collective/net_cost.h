#pragma once

#include "ctran/base/collective_kind.h"

namespace ctran {

/// A collective over the network as the cost model sees it.
struct NetShape {
  CollectiveKind kind;
  double bytes;  ///< that a rank contributes, see contributionBytes
  int size;

  /// Of all blocks together, of one, and of all others than a rank's own, where there are blocks.
  double all() const { return isDivided() ? bytes : bytes * size; }
  double block() const { return all() / size; }
  double others() const { return all() - block(); }

 private:
  bool isDivided() const;
};

/// What the rank does that has the most to do.
struct NetLoad {
  double steps = 0;     ///< messages that wait for one another
  double messages = 0;  ///< sent, or received
  double moved = 0;     ///< bytes that are sent, or received
  double touched = 0;   ///< bytes that are reduced or copied while nothing moves
  double crowd = 0;     ///< connections beyond those that are no burden, see crowdOf

  double micros(int sharing) const;
};

/// Beyond some ranks a connection of each to each costs more than steps do; one rank's to each
/// less.
double crowdOf(int size, bool eachToEach);

/// log2(size), rounded up; and what algorithms of halves do: they work on the largest power of two
/// that is not more, and the ranks beyond hand over their data first and get the result in the end.
int levelsOf(int size);
int halvingStepsOf(int size);
bool isPowerOfTwo(int size);

}  // namespace ctran
