#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <mscclpp/device.hpp>

#if defined(MSCCLPP_DEVICE_CUDA)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else

namespace mscclpp::host {

/// A float of 16 bits, of which all but the sign and the exponent are the mantissa: IEEE 754 with
/// an exponent of 5 bits, bfloat16 with one of 8. Arithmetic is that of float, rounded to the
/// nearest, to even where there are two.
template <int ExponentBits>
struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  Float16(float value) : bits(rounded(value)) {}
  operator float() const { return widened(bits); }

  Float16& operator+=(Float16 other) { return *this = Float16(float(*this) + float(other)); }
  Float16& operator*=(Float16 other) { return *this = Float16(float(*this) * float(other)); }
  friend Float16 operator+(Float16 a, Float16 b) { return a += b; }
  friend Float16 operator*(Float16 a, Float16 b) { return a *= b; }

 private:
  static constexpr int kMantissaBits = 15 - ExponentBits;
  static constexpr int kBias = (1 << (ExponentBits - 1)) - 1;

  static float ofBits(uint32_t whole) {
    float value;
    std::memcpy(&value, &whole, sizeof value);
    return value;
  }

  static uint16_t rounded(float value) {
    uint32_t whole;
    std::memcpy(&whole, &value, sizeof whole);
    const auto sign = static_cast<uint16_t>(whole >> 16 & 0x8000);
    const uint32_t magnitude = whole & 0x7fffffff;
    const auto infinity = static_cast<uint16_t>(((1 << ExponentBits) - 1) << kMantissaBits);
    if (magnitude > 0x7f800000) return sign | infinity | 1 << (kMantissaBits - 1);
    if (magnitude == 0x7f800000) return sign | infinity;
    int exponent = static_cast<int>(magnitude >> 23) - 127 + kBias;
    uint64_t mantissa = (magnitude & 0x7fffff) | (magnitude >= 0x800000 ? 0x800000 : 0);
    if (magnitude < 0x800000) ++exponent;  // subnormal
    int drop = 23 - kMantissaBits;
    if (exponent <= 0 || magnitude < 0x800000) {
      drop += 1 - exponent;
      exponent = 0;
    } else {
      mantissa &= 0x7fffff;
    }
    if (drop > 30) return sign;
    const uint64_t half = uint64_t{1} << (drop - 1);
    uint64_t kept = mantissa >> drop;
    const uint64_t rest = mantissa & (2 * half - 1);
    if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
    // A carry out of the mantissa raises the exponent, as it has to.
    const uint64_t result = (static_cast<uint64_t>(exponent) << kMantissaBits) + kept;
    return static_cast<uint16_t>(sign | (result >= infinity ? infinity : result));
  }

  static float widened(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
    const int exponent = bits >> kMantissaBits & ((1 << ExponentBits) - 1);
    const uint32_t mantissa = bits & ((1 << kMantissaBits) - 1);
    if (exponent == (1 << ExponentBits) - 1) {
      return ofBits(sign | 0x7f800000 | mantissa << (23 - kMantissaBits));
    }
    if (exponent == 0) {
      const float magnitude = std::ldexp(static_cast<float>(mantissa), 1 - kBias - kMantissaBits);
      return sign != 0 ? -magnitude : magnitude;
    }
    return ofBits(sign | static_cast<uint32_t>(exponent - kBias + 127) << 23 |
                  mantissa << (23 - kMantissaBits));
  }
};

}  // namespace mscclpp::host

using __half = mscclpp::host::Float16<5>;
using half = __half;
using __nv_bfloat16 = mscclpp::host::Float16<8>;
#endif

namespace mscclpp {

/// Of the elements of a buffer.
enum class DataType {
  INT32 = 0,
  UINT32 = 1,
  FLOAT16 = 2,
  FLOAT32 = 3,
  BFLOAT16 = 4,
  FLOAT8_E4M3 = 5,  ///< without infinities
  FLOAT8_E5M2 = 6,
  UINT8 = 7,
  INT8 = 8,
  INT16 = 9,
  INT64 = 10,
  UINT16 = 11,
  UINT64 = 12,
  FLOAT64 = 13,
  BOOL = 14,
  COMPLEX64 = 15,
  COMPLEX128 = 16,
  AUTO = 255,  ///< the one that the data has
};

/// Bytes of an element; 0 of AUTO.
inline size_t getDataTypeSize(DataType type) {
  switch (type) {
    case DataType::UINT8:
    case DataType::INT8:
    case DataType::BOOL:
    case DataType::FLOAT8_E4M3:
    case DataType::FLOAT8_E5M2:
      return 1;
    case DataType::FLOAT16:
    case DataType::BFLOAT16:
    case DataType::INT16:
    case DataType::UINT16:
      return 2;
    case DataType::INT32:
    case DataType::UINT32:
    case DataType::FLOAT32:
      return 4;
    case DataType::INT64:
    case DataType::UINT64:
    case DataType::FLOAT64:
    case DataType::COMPLEX64:
      return 8;
    case DataType::COMPLEX128:
      return 16;
    case DataType::AUTO:
      return 0;
  }
  return 0;
}

/// N elements that are loaded and stored together.
template <class T, int N>
struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) VectorType {
  using ElementType = T;
  static constexpr int Size = N;

  T data[N];

  MSCCLPP_HOST_DEVICE_INLINE T& operator[](int i) { return data[i]; }
  MSCCLPP_HOST_DEVICE_INLINE const T& operator[](int i) const { return data[i]; }

  MSCCLPP_DEVICE_INLINE friend VectorType operator+(const VectorType& a, const VectorType& b) {
    VectorType sum;
    for (int i = 0; i < N; ++i) sum.data[i] = a.data[i] + b.data[i];
    return sum;
  }
};

template <class T>
inline constexpr bool kIsVector = false;
template <class T, int N>
inline constexpr bool kIsVector<VectorType<T, N>> = true;

/// Element by element.
template <class T, int N>
MSCCLPP_DEVICE_INLINE VectorType<T, N> min(const VectorType<T, N>& a, const VectorType<T, N>& b) {
  VectorType<T, N> least;
  for (int i = 0; i < N; ++i) least.data[i] = b.data[i] < a.data[i] ? b.data[i] : a.data[i];
  return least;
}
template <class T, int N>
MSCCLPP_DEVICE_INLINE VectorType<T, N> max(const VectorType<T, N>& a, const VectorType<T, N>& b) {
  VectorType<T, N> most;
  for (int i = 0; i < N; ++i) most.data[i] = a.data[i] < b.data[i] ? b.data[i] : a.data[i];
  return most;
}

using i32x1 = VectorType<int32_t, 1>;
using i32x2 = VectorType<int32_t, 2>;
using i32x4 = VectorType<int32_t, 4>;
using u32x1 = VectorType<uint32_t, 1>;
using u32x2 = VectorType<uint32_t, 2>;
using u32x4 = VectorType<uint32_t, 4>;
using f32x1 = VectorType<float, 1>;
using f32x2 = VectorType<float, 2>;
using f32x4 = VectorType<float, 4>;
using f64x1 = VectorType<double, 1>;
using f16x2 = VectorType<__half, 2>;
using f16x4 = VectorType<__half, 4>;
using f16x8 = VectorType<__half, 8>;
using bf16x2 = VectorType<__nv_bfloat16, 2>;
using bf16x4 = VectorType<__nv_bfloat16, 4>;
using bf16x8 = VectorType<__nv_bfloat16, 8>;

}  // namespace mscclpp
