#include "ctran/base/reduce_op.h"

#include <iterator>

namespace ctran {

namespace {

// In the order of the enumeration. The names are torch's, in lower case.
constexpr std::string_view kReductionNames[] = {"sum", "product", "min", "max",       "band",
                                                "bor", "bxor",    "avg", "premul_sum"};
static_assert(std::size(kReductionNames) == kReduceKindCount);

enum class Family { Bool, Integer, Floating, Complex, Opaque };

Family familyOf(DataType type) {
  switch (type) {
    case DataType::Bool:
      return Family::Bool;
    case DataType::Int8:
    case DataType::Int16:
    case DataType::Int32:
    case DataType::Int64:
    case DataType::UInt8:
    case DataType::UInt16:
    case DataType::UInt32:
    case DataType::UInt64:
      return Family::Integer;
    case DataType::Float8E4M3:
    case DataType::Float8E5M2:
    case DataType::Float16:
    case DataType::BFloat16:
    case DataType::Float32:
    case DataType::Float64:
      return Family::Floating;
    case DataType::Complex64:
    case DataType::Complex128:
      return Family::Complex;
    case DataType::Opaque1:
    case DataType::Opaque2:
    case DataType::Opaque4:
    case DataType::Opaque8:
    case DataType::Opaque16:
      return Family::Opaque;
  }
  return Family::Opaque;
}

}  // namespace

std::string_view nameOf(ReduceKind kind) {
  const auto index = static_cast<size_t>(kind);
  return index < std::size(kReductionNames) ? kReductionNames[index] : "unknown reduction";
}

bool isSupported(ReduceKind kind, DataType type) {
  const Family family = familyOf(type);
  switch (kind) {
    case ReduceKind::Sum:
    case ReduceKind::Product:
      return family != Family::Opaque;
    case ReduceKind::Min:
    case ReduceKind::Max:
      return family == Family::Bool || family == Family::Integer || family == Family::Floating;
    case ReduceKind::BitAnd:
    case ReduceKind::BitOr:
    case ReduceKind::BitXor:
      return family == Family::Bool || family == Family::Integer;
    case ReduceKind::Avg:
      return family != Family::Bool && family != Family::Opaque;
    case ReduceKind::PremulSum:
      return family == Family::Floating || family == Family::Complex;
  }
  return false;
}

std::string whyUnsupported(ReduceKind kind, DataType type) {
  if (isSupported(kind, type)) return {};
  const std::string what = std::string(nameOf(kind)) + " of " + std::string(nameOf(type));
  if (familyOf(type) == Family::Opaque) {
    return what + " is not defined: the engine moves this element type but cannot reduce it";
  }
  switch (kind) {
    case ReduceKind::Min:
    case ReduceKind::Max:
      return what + " is not defined: complex numbers have no order";
    case ReduceKind::BitAnd:
    case ReduceKind::BitOr:
    case ReduceKind::BitXor:
      return what + " is not defined: bitwise reductions need an integer type or bool";
    case ReduceKind::Avg:
      return what + " is not defined: truth has no average; convert to a floating type first";
    default:
      return what + " is not defined: a factor needs a floating or complex type";
  }
}

}  // namespace ctran
