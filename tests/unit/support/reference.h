// What reductions mean, one element at a time and by other means than the kernels use: formats are
// described by numbers, rounding is done in double precision.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ctran/base/data_type.h"
#include "ctran/base/reduce_op.h"

namespace ctran::reference {

struct SmallFormat {
  int bits;
  int mantissa;
  int bias;
  bool ieee;  ///< with infinities; otherwise only the largest code of each sign is special, a NaN
};

inline constexpr SmallFormat kE4M3{8, 3, 7, false};
inline constexpr SmallFormat kE5M2{8, 2, 15, true};
inline constexpr SmallFormat kHalf{16, 10, 15, true};
inline constexpr SmallFormat kBrain{16, 7, 127, true};

inline uint32_t largestMagnitude(const SmallFormat& f) { return (1u << (f.bits - 1)) - 1; }
inline uint32_t infinityCode(const SmallFormat& f) {
  return largestMagnitude(f) & ~((1u << f.mantissa) - 1);
}

double decode(uint32_t code, const SmallFormat& f);

/// To nearest even; too large is infinity, or NaN where there is none.
uint32_t encode(double value, const SmallFormat& f);

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

/// Calls `visit(get, put)`: how elements of a type are read and written as what accumulates.
template <class Visit>
void withFormat(DataType type, Visit visit) {
  const auto plain = [&](auto zero) {
    using T = decltype(zero);
    visit([](const std::byte* p) { return load<T>(p); }, [](std::byte* p, T v) { store(p, v); });
  };
  const auto small = [&](const SmallFormat& f, auto zero) {
    using Code = decltype(zero);
    visit([&f](const std::byte* p) { return static_cast<float>(decode(load<Code>(p), f)); },
          [&f](std::byte* p, float v) { store(p, static_cast<Code>(encode(v, f))); });
  };
  switch (type) {
    case DataType::Bool:
      return visit([](const std::byte* p) { return *p != std::byte{0}; },
                   [](std::byte* p, bool v) { *p = std::byte{v}; });
    case DataType::Int8:
      return plain(int8_t{});
    case DataType::Int16:
      return plain(int16_t{});
    case DataType::Int32:
      return plain(int32_t{});
    case DataType::Int64:
      return plain(int64_t{});
    case DataType::UInt8:
      return plain(uint8_t{});
    case DataType::UInt16:
      return plain(uint16_t{});
    case DataType::UInt32:
      return plain(uint32_t{});
    case DataType::UInt64:
      return plain(uint64_t{});
    case DataType::Float8E4M3:
      return small(kE4M3, uint8_t{});
    case DataType::Float8E5M2:
      return small(kE5M2, uint8_t{});
    case DataType::Float16:
      return small(kHalf, uint16_t{});
    case DataType::BFloat16:
      return small(kBrain, uint16_t{});
    case DataType::Float32:
      return plain(float{});
    case DataType::Float64:
      return plain(double{});
    case DataType::Complex64:
      return plain(std::complex<float>{});
    case DataType::Complex128:
      return plain(std::complex<double>{});
    default:
      return;
  }
}

/// What `reduceFn` promises.
void reduce(ReduceKind kind, DataType type, std::byte* dst,
            const std::vector<const std::byte*>& src, size_t count, int divisor);

/// What `scale` promises, for the types that have it.
void scale(DataType type, std::byte* dst, const std::byte* src, size_t count, double factor);

/// Whether the results are the same bits, or NaNs in the same places.
bool same(DataType type, const std::byte* a, const std::byte* b);

}  // namespace ctran::reference
