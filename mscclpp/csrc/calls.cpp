#include "calls.h"

#include <map>

namespace mscclpp {

const Shape* shapeOf(const std::string& collective) {
  using Kind = ctran::CollectiveKind;
  static const std::map<std::string, Shape> all{
      {"allreduce", {Kind::AllReduce, "all_reduce", false, false}},
      {"allgather", {Kind::AllGather, "all_gather", false, true}},
      {"reducescatter", {Kind::ReduceScatter, "reduce_scatter", true, false}},
      {"alltoall", {Kind::AllToAll, "all_to_all", true, true}},
      {"broadcast", {Kind::Broadcast, "broadcast", false, false}},
  };
  const auto found = all.find(collective);
  return found == all.end() ? nullptr : &found->second;
}

size_t countOf(const Shape& shape, size_t inputBytes, size_t outputBytes, size_t ranks,
               size_t element) {
  const size_t inputs = shape.manyInputs ? ranks : 1, outputs = shape.manyOutputs ? ranks : 1;
  const size_t count = inputBytes / inputs / element;
  if (inputBytes == count * inputs * element && outputBytes % outputs == 0 &&
      outputBytes / outputs == count * element) {
    return count;
  }
  throw Error("an input of " + std::to_string(inputBytes) + " and an output of " +
                  std::to_string(outputBytes) + " bytes do not belong together: the input is " +
                  std::to_string(inputs) + " and the output " + std::to_string(outputs) +
                  " blocks of whole elements of " + std::to_string(element) + " bytes",
              ErrorCode::ExecutorError);
}

ctran::DataType engineType(DataType type) {
  using Type = ctran::DataType;
  switch (type) {
    case DataType::INT32:
      return Type::Int32;
    case DataType::UINT32:
      return Type::UInt32;
    case DataType::FLOAT16:
      return Type::Float16;
    case DataType::FLOAT32:
      return Type::Float32;
    case DataType::BFLOAT16:
      return Type::BFloat16;
    case DataType::FLOAT8_E4M3:
      return Type::Float8E4M3;
    case DataType::FLOAT8_E5M2:
      return Type::Float8E5M2;
    case DataType::UINT8:
      return Type::UInt8;
    case DataType::INT8:
      return Type::Int8;
    case DataType::INT16:
      return Type::Int16;
    case DataType::INT64:
      return Type::Int64;
    case DataType::UINT16:
      return Type::UInt16;
    case DataType::UINT64:
      return Type::UInt64;
    case DataType::FLOAT64:
      return Type::Float64;
    case DataType::COMPLEX64:
      return Type::Complex64;
    case DataType::COMPLEX128:
      return Type::Complex128;
    case DataType::BOOL:
      return Type::Bool;
    case DataType::AUTO:
      break;
  }
  throw Error("a plan needs a data type", ErrorCode::InvalidUsage);
}

bool sumsAreIn(DataType accumulator, DataType type) {
  if (accumulator == DataType::AUTO || accumulator == type) return true;
  const auto isSmall = [](DataType one) {
    return one == DataType::FLOAT16 || one == DataType::BFLOAT16 || one == DataType::FLOAT8_E4M3 ||
           one == DataType::FLOAT8_E5M2;
  };
  return isSmall(type) && (isSmall(accumulator) || accumulator == DataType::FLOAT32);
}

ctran::ReduceKind engineReduction(ReduceOp op) {
  using Kind = ctran::ReduceKind;
  switch (op) {
    case ReduceOp::PROD:
      return Kind::Product;
    case ReduceOp::MAX:
      return Kind::Max;
    case ReduceOp::MIN:
      return Kind::Min;
    case ReduceOp::AVG:
      return Kind::Avg;
    case ReduceOp::BAND:
      return Kind::BitAnd;
    case ReduceOp::BOR:
      return Kind::BitOr;
    case ReduceOp::BXOR:
      return Kind::BitXor;
    default:
      return Kind::Sum;
  }
}

}  // namespace mscclpp
