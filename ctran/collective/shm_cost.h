#pragma once

#include <string>

#include "ctran/collective/algorithm.h"

namespace ctran {

/// Bytes of the busiest rank in an algorithm over shared memory.
struct ShmTraffic {
  double written, read, reduced;
};

// The cost model of shared memory, in microseconds.

/// What a step of all ranks costs before any byte moves.
double startMicros(int size);
/// Of data that goes in one step, and of data that goes in rounds of so many phases.
double inOneStepMicros(const ShmTraffic& traffic, int size);
double inRoundsMicros(const ShmTraffic& traffic, int size, int phases);

/// A byte that is read from the memory of another process.
inline constexpr double kReadProcess = 1 / 13e3;
/// To look into each other process once, among others who do.
double lookIntoAllMicros(int size);

// Of algorithms in which everybody who needs a contribution reads it whole, or its part of it.
double stepMicros(const AlgorithmQuery& query);
double roundsMicros(const AlgorithmQuery& query);
/// By reading the memory of the others.
double pullMicros(const AlgorithmQuery& query);

/// Of those in which each rank reduces its part, and then all collect the parts.
double twoPhaseMicros(const AlgorithmQuery& query);

/// Why data does not go in one step; empty if it does.
std::string whyNotInAStep(const AlgorithmQuery& query);
/// Why a slot cannot tell where the blocks for all ranks are; empty if it can.
std::string whyNoAddresses(const AlgorithmQuery& query);

}  // namespace ctran
