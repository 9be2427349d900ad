#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/algorithm.hpp"

namespace mscclpp {

/// Which calls of the engine's communicators an algorithm serves.
struct AlgorithmUse {
  std::string communicator;  ///< of that name only; empty: any
  bool preferred = false;
  std::vector<DataType> types;       ///< that it reduces; of those it moves, any
  std::vector<ReduceOp> reductions;  ///< that it does
};

/// Has it serve calls of its collective, in its range and where its constraint holds, until
/// ctran::api::removePlan of the number. Throws Error(InvalidUsage) if it is of no collective of
/// the engine, or no NativeAlgorithm.
uint64_t registerAlgorithm(std::shared_ptr<Algorithm> algorithm, const AlgorithmUse& use);

}  // namespace mscclpp
