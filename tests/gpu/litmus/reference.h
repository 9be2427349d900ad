#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

/// What an all-reduce must give, bit for bit: contributions combined in rank order, small floats as
/// fp32 and rounded once.
namespace litmus {

using Bytes = std::vector<unsigned char>;

size_t elementSize(const std::string& element);

/// Data of a rank: differs by rank, position and seed; of moderate size, so that nothing overflows.
Bytes inputOf(const std::string& element, int rank, size_t count, unsigned seed);

Bytes allReduced(const std::string& element, const std::string& op,
                 const std::vector<Bytes>& inputs, const std::vector<double>& factors);

}  // namespace litmus
