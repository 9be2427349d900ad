#pragma once

namespace ctran {

/// Rows of benchmarks/gpu_collectives.py; written by CMake.
extern const char* const kMeasuredOn2H200;
extern const char* const kMeasuredOn4H200;

}  // namespace ctran
