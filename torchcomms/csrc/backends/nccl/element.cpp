#include "torchcomms/csrc/backends/nccl/element.hpp"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <cstring>

#include "ctran/base/error.h"
#include "torchcomms/csrc/data_type.hpp"

namespace torch::comms::nccl {

namespace {

using c10::ScalarType;

[[noreturn]] void refuse(const at::Tensor& tensor, const ReduceOp& op, const Library& library,
                         const std::string& why, const std::string& hint = {}) {
  throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                     "Cannot use ReduceOp." + std::string(toString(op.type())) + " with " +
                         library.vendor->label + " on " + c10::toString(tensor.scalar_type()) +
                         ": " + why,
                     {}, {}, hint);
}

DataType typeOf(const at::Tensor& tensor, const ReduceOp& op, const Library& library) {
  switch (tensor.scalar_type()) {
    case ScalarType::Char:
      return DataType::Int8;
    case ScalarType::Byte:
    case ScalarType::Bool:
      return DataType::Uint8;
    case ScalarType::Int:
      return DataType::Int32;
    case ScalarType::UInt32:
      return DataType::Uint32;
    case ScalarType::Long:
      return DataType::Int64;
    case ScalarType::UInt64:
      return DataType::Uint64;
    case ScalarType::Half:
      return DataType::Float16;
    case ScalarType::BFloat16:
      return DataType::Bfloat16;
    case ScalarType::Float:
    case ScalarType::ComplexFloat:
      return DataType::Float32;
    case ScalarType::Double:
    case ScalarType::ComplexDouble:
      return DataType::Float64;
    case ScalarType::Float8_e4m3fn:
    case ScalarType::Float8_e5m2:
      if (library.version < 22400) library.tooOld("Reduction of 8-bit floats", 22400);
      return tensor.scalar_type() == ScalarType::Float8_e5m2 ? DataType::Float8e5m2
                                                             : DataType::Float8e4m3;
    default:
      refuse(tensor, op, library, "the library does not reduce this dtype",
             "convert it: .to(torch.int32) or the like");
  }
}

/// bool is reduced as bytes of 0 and 1.
RedOp boolOp(const at::Tensor& tensor, const ReduceOp& op, const Library& library) {
  switch (op.type()) {
    case RedOpType::SUM:
    case RedOpType::MAX:
    case RedOpType::BOR:
      return kMax;
    case RedOpType::PRODUCT:
    case RedOpType::MIN:
    case RedOpType::BAND:
      return kMin;
    default:
      refuse(tensor, op, library, "the library has no such reduction");
  }
}

RedOp redOpOf(const at::Tensor& tensor, const ReduceOp& op, const Library& library) {
  switch (op.type()) {
    case RedOpType::SUM:
    case RedOpType::PREMUL_SUM:
      return kSum;
    case RedOpType::PRODUCT:
      if (tensor.is_complex()) refuse(tensor, op, library, "the library knows no complex numbers");
      return kProd;
    case RedOpType::MIN:
      return kMin;
    case RedOpType::MAX:
      return kMax;
    case RedOpType::AVG:
      return kAvg;
    default:
      refuse(tensor, op, library, "the library has no bitwise reductions");
  }
}

template <typename T>
void put(Factor& factor, double value) {
  const T number = static_cast<T>(value);
  std::memcpy(factor.number.data(), &number, sizeof(number));
}

}  // namespace

Element reducedElement(const at::Tensor& tensor, const ReduceOp& op, const Library& library) {
  reducedType(tensor,
              engineOp(ReduceOp(op.type())).kind);  // what means nothing means nothing anywhere
  Element element{typeOf(tensor, op, library)};
  if (tensor.is_complex()) element.perElement = 2;
  element.op = tensor.scalar_type() == ScalarType::Bool ? boolOp(tensor, op, library)
                                                        : redOpOf(tensor, op, library);
  return element;
}

Factor factorFor(const at::Tensor& tensor, const ReduceOp& op) {
  const ScalarType type = c10::toRealValueType(tensor.scalar_type());
  Factor factor;
  if (const at::Tensor* given = std::get_if<at::Tensor>(&op.factor());
      given && given->device() == tensor.device() && !given->is_cpu()) {
    const at::AutoDispatchBelowADInplaceOrView belowAutograd;
    factor.tensor = given->detach().to(type).contiguous();
    return factor;
  }
  const double value = op.factorAsDouble();
  switch (type) {
    case ScalarType::Half:
      put<c10::Half>(factor, value);
      break;
    case ScalarType::BFloat16:
      put<c10::BFloat16>(factor, value);
      break;
    case ScalarType::Float8_e4m3fn:
      put<c10::Float8_e4m3fn>(factor, value);
      break;
    case ScalarType::Float8_e5m2:
      put<c10::Float8_e5m2>(factor, value);
      break;
    case ScalarType::Double:
      put<double>(factor, value);
      break;
    default:
      put<float>(factor, static_cast<float>(value));
  }
  return factor;
}

}  // namespace torch::comms::nccl
