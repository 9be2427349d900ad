// Covering arrays: a few combinations in which every pair of values of any two parameters occurs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ctran::testing {

/// Rows of one value per parameter, parameter p taking 0 .. sizes[p]-1. Every pair occurs in some
/// row. The same rows for the same seed.
std::vector<std::vector<size_t>> pairwise(const std::vector<size_t>& sizes, uint64_t seed);

}  // namespace ctran::testing
