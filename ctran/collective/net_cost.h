#pragma once

#include "ctran/collective/algorithm.h"

namespace ctran {

/// What the rank does that has the most to do in an algorithm over the network.
struct NetLoad {
  double steps = 0;     ///< messages that wait for one another
  double messages = 0;  ///< sent, or received
  double moved = 0;     ///< bytes that are sent, or received
  double touched = 0;   ///< bytes that are reduced or copied while nothing moves
  double crowd = 0;     ///< connections beyond those that are no burden, see crowdOf
};

/// The cost model of the network.
double netMicros(const AlgorithmQuery& query, const NetLoad& load);

/// Beyond some ranks a connection of each to each costs more than steps do; one rank's to each
/// less.
double crowdOf(int size, bool eachToEach);
/// Where each rank sends to each at once, and these are many, so many times the bytes take as long:
/// what comes from all at once waits, or is lost, before the receiver.
double crowding(int size);

/// log2(size), rounded up; and what algorithms of halves do: they work on the largest power of two
/// that is not more, and the ranks beyond hand over their data first and get the result in the end.
int levelsOf(int size);
int halvingStepsOf(int size);
bool isPowerOfTwo(int size);

// Of algorithms of one kind for several collectives.

/// A tensor in two steps, each of them of parts from each to each.
double twoStepsMicros(const AlgorithmQuery& query);
/// Blocks: each straight to whom it is for, from one rank to the next, by halves, in a tree.
double straightMicros(const AlgorithmQuery& query);
double oneByOneMicros(const AlgorithmQuery& query);
double byHalvesMicros(const AlgorithmQuery& query);
double treeOfBlocksMicros(const AlgorithmQuery& query);

}  // namespace ctran
