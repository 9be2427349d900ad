#include "ctran/reduce/weighted_sum.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

#include "ctran/base/error.h"

namespace ctran {
namespace {

struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

float widen(float x) { return x; }
double widen(double x) { return x; }
float widen(BFloat x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
float widen(Half x) {
  // The exponent is re-biased by a multiplication, which is exact, also for subnormal numbers.
  const uint32_t magnitude = uint32_t{x.bits & 0x7fffu} << 13;
  float value = std::bit_cast<float>(magnitude) * 0x1p112f;
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((x.bits & 0x7c00) == 0x7c00) bits |= 0x7f800000;  // infinity, NaN
  value = std::bit_cast<float>(bits | uint32_t{x.bits & 0x8000u} << 16);
  return value;
}

void narrow(float value, float& to) { to = value; }
void narrow(double value, double& to) { to = value; }
void narrow(float value, BFloat& to) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool isNan = (bits & 0x7fffffff) > 0x7f800000;
  to.bits = isNan ? 0x7fc0 : static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
void narrow(float value, Half& to) {
  const auto all = std::bit_cast<uint32_t>(value);
  const uint32_t sign = all >> 16 & 0x8000;
  uint32_t bits = all & 0x7fffffff;
  if (bits > 0x7f800000) {
    bits = 0x7e00;  // NaN
  } else if (bits >= 0x477ff000) {
    bits = 0x7c00;  // 65520 and more
  } else if (bits < 0x38800000) {
    // Below 2^-14: next to 0.5 the last digit is worth 2^-24, as it is in the result.
    bits = std::bit_cast<uint32_t>(std::bit_cast<float>(bits) + 0.5f) - 0x3f000000;
  } else {
    bits = (bits - (112u << 23) + 0xfff + (bits >> 13 & 1)) >> 13;
  }
  to.bits = static_cast<uint16_t>(sign | bits);
}

template <class T>
T at(const std::byte* data, size_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(T), sizeof value);
  return value;
}

template <class T>
void addRow(std::byte* partial, const std::byte* row, size_t count, float weight) {
  using Wide = decltype(widen(T{}));
  auto* const sum = reinterpret_cast<Wide*>(partial);
  for (size_t i = 0; i < count; ++i) sum[i] += static_cast<Wide>(weight) * widen(at<T>(row, i));
}

template <class T>
void roundRow(std::byte* to, const std::byte* partial, size_t count) {
  using Wide = decltype(widen(T{}));
  for (size_t i = 0; i < count; ++i) {
    T value;
    narrow(at<Wide>(partial, i), value);
    std::memcpy(to + i * sizeof value, &value, sizeof value);
  }
}

/// `visit.operator()<T>()` for the type.
template <class Visit>
void dispatch(DataType type, Visit visit) {
  switch (type) {
    case DataType::Float16:
      return visit.template operator()<Half>();
    case DataType::BFloat16:
      return visit.template operator()<BFloat>();
    case DataType::Float32:
      return visit.template operator()<float>();
    default:
      return visit.template operator()<double>();
  }
}

}  // namespace

bool WeightedSum::isSupported(DataType type) {
  return type == DataType::Float16 || type == DataType::BFloat16 || type == DataType::Float32 ||
         type == DataType::Float64;
}

WeightedSum::WeightedSum(DataType type) : type(type) {
  if (isSupported(type)) return;
  throw Error(ErrorKind::InvalidArgument,
              "rows of " + std::string(nameOf(type)) +
                  " cannot be combined: of float16, bfloat16, float32 and float64 they can");
}

void WeightedSum::add(std::byte* partial, const std::byte* row, size_t count, float weight) const {
  dispatch(type, [&]<class T>() { addRow<T>(partial, row, count, weight); });
}

void WeightedSum::addPartial(std::byte* partial, const std::byte* other, size_t count) const {
  if (type == DataType::Float64) return addRow<double>(partial, other, count, 1);
  addRow<float>(partial, other, count, 1);
}

void WeightedSum::round(std::byte* to, const std::byte* partial, size_t count) const {
  dispatch(type, [&]<class T>() { roundRow<T>(to, partial, count); });
}

}  // namespace ctran
