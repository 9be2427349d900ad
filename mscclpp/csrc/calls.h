#pragma once

#include <string>

#include "ctran/communicator.h"
#include "mscclpp/algorithm.hpp"

namespace mscclpp {

/// A collective of MSCCL++, as the engine has it.
struct Shape {
  ctran::CollectiveKind kind;
  const char* name;  ///< the engine's
  bool manyInputs;   ///< the input holds a block for each rank
  bool manyOutputs;  ///< the output does
};

/// Null: there is none.
const Shape* shapeOf(const std::string& collective);

/// Elements of a block. Throws Error(ExecutorError) where the sizes do not belong together.
size_t countOf(const Shape& shape, size_t inputBytes, size_t outputBytes, size_t ranks,
               size_t element);

/// Throws Error(InvalidUsage) for AUTO.
ctran::DataType engineType(DataType type);

/// Whether sums of that type are as good as those made in `accumulator`: of small floats they are
/// float32 ones.
bool sumsAreIn(DataType accumulator, DataType type);

/// NOP is a sum.
ctran::ReduceKind engineReduction(ReduceOp op);

}  // namespace mscclpp
