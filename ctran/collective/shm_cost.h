#pragma once

#include <string>

#include "ctran/collective/algorithm.h"

namespace ctran {

/// The bytes that the busiest rank moves in an algorithm over shared memory.
struct ShmTraffic {
  double written, read, reduced;
};

// The cost model of shared memory, in microseconds.

/// Returns what a step of all ranks costs before any byte moves.
double startMicros(int size);
/// Return the cost of data that goes in one step, and of data that goes in rounds of `phases`
/// phases.
double inOneStepMicros(const ShmTraffic& traffic, int size);
double inRoundsMicros(const ShmTraffic& traffic, int size, int phases);

/// The cost of a byte that is read from the memory of another process.
inline constexpr double kReadProcess = 1 / 13e3;
/// Returns the cost of reading from every other process once, while they do the same.
double lookIntoAllMicros(int size);

// The costs of algorithms in which every rank that needs a contribution reads it, or its part of
// it, directly.
double stepMicros(const AlgorithmQuery& query);
double roundsMicros(const AlgorithmQuery& query);
/// Returns the cost of reading the memory of the other processes.
double pullMicros(const AlgorithmQuery& query);

/// Returns the cost of algorithms in which each rank reduces its part, and then all collect the
/// parts.
double twoPhaseMicros(const AlgorithmQuery& query);

/// Returns why data does not go in one step; empty if it does.
std::string whyNotInAStep(const AlgorithmQuery& query);
/// Returns why a slot cannot hold the addresses of the blocks for all ranks; empty if it can.
std::string whyNoAddresses(const AlgorithmQuery& query);

}  // namespace ctran
