#pragma once

namespace ctran {

/// Rows of benchmarks/gpu_collectives.py. CMake writes them.
extern const char* const kMeasuredOn2H200;
extern const char* const kMeasuredOn4H200;

}  // namespace ctran
