#include "torchcomms/csrc/backends/c10d/reduction.hpp"

#include <ATen/ATen.h>

#include <limits>

#include "torchcomms/csrc/data_type.hpp"

namespace torch::comms {

namespace {

using c10::ScalarType;
using ctran::ReduceKind;
using RedOp = c10d::ReduceOp::RedOpType;

constexpr int64_t kSignBit = std::numeric_limits<int64_t>::min();

RedOp carriedOp(ReduceKind kind, ScalarType type) {
  const bool isBool = type == ScalarType::Bool;
  switch (kind) {
    case ReduceKind::Sum:
      return isBool ? RedOp::MAX : RedOp::SUM;
    case ReduceKind::Avg:
    case ReduceKind::PremulSum:
      return RedOp::SUM;
    case ReduceKind::Product:
      return isBool ? RedOp::MIN : RedOp::PRODUCT;
    case ReduceKind::Min:
      return RedOp::MIN;
    case ReduceKind::Max:
      return RedOp::MAX;
    case ReduceKind::BitAnd:
      return RedOp::BAND;
    case ReduceKind::BitOr:
      return RedOp::BOR;
    case ReduceKind::BitXor:
      return RedOp::BXOR;
  }
  return RedOp::UNUSED;
}

void accumulate(at::Tensor& sum, const at::Tensor& next, RedOp op) {
  switch (op) {
    case RedOp::PRODUCT:
      sum.mul_(next);
      return;
    case RedOp::MIN:
      at::minimum_out(sum, sum, next);
      return;
    case RedOp::MAX:
      at::maximum_out(sum, sum, next);
      return;
    case RedOp::BAND:
      sum.bitwise_and_(next);
      return;
    case RedOp::BOR:
      sum.bitwise_or_(next);
      return;
    case RedOp::BXOR:
      sum.bitwise_xor_(next);
      return;
    default:
      sum.add_(next);
  }
}

/// Integers, rounded towards zero.
void divide(const at::Tensor& tensor, int64_t by) {
  if (tensor.scalar_type() != ScalarType::UInt64) {
    tensor.copy_(tensor.to(at::kLong).div(by, "trunc"));
    return;
  }
  // Torch divides signed numbers: first half of the value, then what that leaves, less than 2 * by.
  const at::Tensor value = tensor.view(at::kLong);
  const at::Tensor half = value.bitwise_right_shift(1).bitwise_and_(~kSignBit);
  const at::Tensor quotient = half.div(by, "trunc").mul_(2);
  value.copy_(quotient + (value - quotient * by).ge(by));
}

at::Tensor realsOf(const at::Tensor& flat) { return at::view_as_real(flat).view(-1); }

}  // namespace

Reduction::Reduction(const at::Tensor& example, const ReduceOp& op, int ranks, bool carriesBits)
    : type_(example.scalar_type()),
      wanted_(engineOp(op)),
      ranks_(ranks),
      carriesBits_(carriesBits) {
  reducedType(example, wanted_.kind);
  op_ = carriedOp(wanted_.kind, type_);
}

bool Reduction::isCarried() const {
  if (c10::isComplexType(type_) && wanted_.kind == ReduceKind::Product) return false;
  return carriesBits_ || (op_ != RedOp::BAND && op_ != RedOp::BOR && op_ != RedOp::BXOR);
}

bool Reduction::ordersUnsigned() const {
  return type_ == ScalarType::UInt64 && (op_ == RedOp::MIN || op_ == RedOp::MAX);
}

at::Tensor Reduction::encode(const at::Tensor& tensor) const {
  const at::Tensor flat = tensor.view(-1);
  at::Tensor values = flat;
  switch (type_) {
    case ScalarType::Bool:
      values = flat.view(at::kByte);
      break;
    case ScalarType::Short:
    case ScalarType::UInt16:
      values = flat.to(at::kInt);
      break;
    case ScalarType::UInt32:
      values = flat.to(at::kLong);
      break;
    case ScalarType::UInt64:
      values = flat.view(at::kLong);
      if (ordersUnsigned()) values = values.bitwise_xor(kSignBit);
      break;
    case ScalarType::Float8_e4m3fn:
    case ScalarType::Float8_e5m2:
      values = flat.to(at::kFloat);
      break;
    case ScalarType::ComplexFloat:
    case ScalarType::ComplexDouble:
      if (isCarried()) values = realsOf(flat);
      break;
    default:
      break;
  }
  if (wanted_.kind != ReduceKind::PremulSum) return values;
  values = values.mul(wanted_.factor);
  const bool isWidened = type_ == ScalarType::Float8_e4m3fn || type_ == ScalarType::Float8_e5m2;
  // The product is of the tensor's type, the sum is not.
  return isWidened ? values.to(type_).to(at::kFloat) : values;
}

void Reduction::decode(const at::Tensor& values, const at::Tensor& tensor) const {
  const bool averages = wanted_.kind == ReduceKind::Avg;
  const bool averagesIntegers = averages && c10::isIntegralType(type_, /*includeBool=*/false);
  if (averages && !averagesIntegers) values.div_(ranks_);
  if (ordersUnsigned()) values.bitwise_xor_(kSignBit);
  if (!values.is_alias_of(tensor)) store(values, tensor);
  if (averagesIntegers) divide(tensor, ranks_);  // the sum as the type holds it
}

void Reduction::store(const at::Tensor& values, const at::Tensor& tensor) const {
  const at::Tensor flat = tensor.view(-1);
  switch (type_) {
    case ScalarType::Bool:
      flat.view(at::kByte).copy_(values);
      return;
    case ScalarType::UInt64:
      flat.view(at::kLong).copy_(values);
      return;
    case ScalarType::ComplexFloat:
    case ScalarType::ComplexDouble:
      (isCarried() ? realsOf(flat) : flat).copy_(values);
      return;
    default:
      flat.copy_(values);
  }
}

at::Tensor Reduction::reduceBlocks(const at::Tensor& blocks) const {
  const bool isNarrow = blocks.scalar_type() == at::kHalf || blocks.scalar_type() == at::kBFloat16;
  at::Tensor sum = blocks[0].to(isNarrow ? at::kFloat : blocks.scalar_type(), false, /*copy=*/true);
  for (int64_t r = 1; r < blocks.size(0); ++r) accumulate(sum, blocks[r], op_);
  return sum;
}

at::Tensor bytesOf(const at::Tensor& tensor) {
  return at::from_blob(
      const_cast<void*>(tensor.const_data_ptr()), {static_cast<int64_t>(tensor.nbytes())},
      [tensor](void*) {}, at::TensorOptions(at::kByte).device(tensor.device()), tensor.device());
}

std::vector<at::Tensor> bytesOf(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> bytes;
  bytes.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) bytes.push_back(bytesOf(tensor));
  return bytes;
}

}  // namespace torch::comms
