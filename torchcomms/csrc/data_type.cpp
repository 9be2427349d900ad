#include "torchcomms/csrc/data_type.hpp"

#include <string>

#include "ctran/base/error.h"

namespace torch::comms {

namespace {

using ctran::DataType;

/// The types that the engine knows by meaning; the rest it knows by size.
std::optional<DataType> namedType(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Bool:
      return DataType::Bool;
    case c10::ScalarType::Char:
      return DataType::Int8;
    case c10::ScalarType::Short:
      return DataType::Int16;
    case c10::ScalarType::Int:
      return DataType::Int32;
    case c10::ScalarType::Long:
      return DataType::Int64;
    case c10::ScalarType::Byte:
      return DataType::UInt8;
    case c10::ScalarType::UInt16:
      return DataType::UInt16;
    case c10::ScalarType::UInt32:
      return DataType::UInt32;
    case c10::ScalarType::UInt64:
      return DataType::UInt64;
    case c10::ScalarType::Float8_e4m3fn:
      return DataType::Float8E4M3;
    case c10::ScalarType::Float8_e5m2:
      return DataType::Float8E5M2;
    case c10::ScalarType::Half:
      return DataType::Float16;
    case c10::ScalarType::BFloat16:
      return DataType::BFloat16;
    case c10::ScalarType::Float:
      return DataType::Float32;
    case c10::ScalarType::Double:
      return DataType::Float64;
    case c10::ScalarType::ComplexFloat:
      return DataType::Complex64;
    case c10::ScalarType::ComplexDouble:
      return DataType::Complex128;
    default:
      return std::nullopt;
  }
}

[[noreturn]] void unsupportedType(c10::ScalarType type, const std::string& why) {
  throw ctran::Error(
      ctran::ErrorKind::InvalidArgument,
      std::string("Unsupported scalar data type ") + c10::toString(type) + ": " + why);
}

}  // namespace

DataType movedType(const at::Tensor& tensor) {
  if (const auto named = namedType(tensor.scalar_type())) return *named;
  if (const auto opaque = ctran::opaqueOfSize(tensor.element_size())) return *opaque;
  unsupportedType(tensor.scalar_type(),
                  "elements of " + std::to_string(tensor.element_size()) + " bytes");
}

DataType reducibleType(c10::ScalarType type) {
  if (const auto named = namedType(type)) return *named;
  unsupportedType(type, "it can be moved, but not reduced");
}

DataType reducedType(const at::Tensor& tensor, ctran::ReduceKind op) {
  const DataType named = reducibleType(tensor.scalar_type());
  if (!ctran::isSupported(op, named)) [[unlikely]] {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument, ctran::whyUnsupported(op, named));
  }
  return named;
}

ctran::ReduceOp engineOp(const ReduceOp& op) {
  switch (op.type()) {
    case RedOpType::SUM:
      return {ctran::ReduceKind::Sum};
    case RedOpType::PRODUCT:
      return {ctran::ReduceKind::Product};
    case RedOpType::MIN:
      return {ctran::ReduceKind::Min};
    case RedOpType::MAX:
      return {ctran::ReduceKind::Max};
    case RedOpType::BAND:
      return {ctran::ReduceKind::BitAnd};
    case RedOpType::BOR:
      return {ctran::ReduceKind::BitOr};
    case RedOpType::BXOR:
      return {ctran::ReduceKind::BitXor};
    case RedOpType::AVG:
      return {ctran::ReduceKind::Avg};
    case RedOpType::PREMUL_SUM:
      return {ctran::ReduceKind::PremulSum, op.factorAsDouble()};
  }
  throw ctran::Error(ctran::ErrorKind::InvalidArgument, "Unknown reduction");
}

}  // namespace torch::comms
