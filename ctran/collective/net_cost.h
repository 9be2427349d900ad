#pragma once

#include "ctran/collective/algorithm.h"

namespace ctran {

/// The work of the busiest rank in an algorithm over the network.
struct NetLoad {
  double steps = 0;     ///< number of messages that wait for one another
  double messages = 0;  ///< number of messages sent or received
  double moved = 0;     ///< bytes sent or received
  double touched = 0;   ///< bytes reduced or copied while nothing moves
  double crowd = 0;     ///< cost of many connections, see crowdOf
};

/// The cost model of the network, in microseconds.
double netMicros(const AlgorithmQuery& query, const NetLoad& load);

/// Returns the cost of a rank's connections beyond 32, in microseconds: where every rank connects
/// to every other, each of them costs more than a step does; where one rank connects to all, less.
double crowdOf(int size, bool eachToEach);
/// Returns a factor for the bytes of an exchange in which each rank sends to each at once: with
/// many ranks, what arrives from all at once waits, or is lost, before the receiver.
double crowding(int size);

/// `levelsOf` returns log2(size), rounded up. `halvingStepsOf` returns the steps of halving
/// algorithms: these work on the largest power of two up to `size`; ranks beyond it hand over their
/// data first and get the result in the end.
int levelsOf(int size);
int halvingStepsOf(int size);
bool isPowerOfTwo(int size);

// The costs of algorithms that serve several collectives alike.

/// Returns the cost of a tensor that moves in two steps, in each of which every rank sends a part
/// to every other.
double twoStepsMicros(const AlgorithmQuery& query);
/// Return the cost of moving blocks: each straight to its receiver, from one rank to the next, by
/// halves, and in a tree.
double straightMicros(const AlgorithmQuery& query);
double oneByOneMicros(const AlgorithmQuery& query);
double byHalvesMicros(const AlgorithmQuery& query);
double treeOfBlocksMicros(const AlgorithmQuery& query);

}  // namespace ctran
