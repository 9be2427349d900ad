// How elements in memory become numbers to compute with, and back.
//
// A codec takes apart a vector of bytes into `kParts` vectors of `Element`. Which element goes to
// which part is its own affair, as long as encode() puts it back where decode() took it from.
#pragma once

#include "ctran/reduce/vector.inl"

namespace ctran {
namespace {

template <class T>
struct Plain {
  using Element = T;
  static constexpr int kParts = 1;
  static CTRAN_INLINE void decode(Raw raw, Vector<T>* parts) { parts[0] = (Vector<T>)raw; }
  static CTRAN_INLINE Raw encode(const Vector<T>* parts) { return (Raw)parts[0]; }
};

struct Boolean {
  using Element = uint8_t;
  static constexpr int kParts = 1;
  static CTRAN_INLINE void decode(Raw raw, Vector<uint8_t>* parts) {
    parts[0] = (Vector<uint8_t>)((Vector<uint8_t>)raw != 0) & 1;
  }
  static CTRAN_INLINE Raw encode(const Vector<uint8_t>* parts) { return (Raw)parts[0]; }
};

// The upper half of an fp32. Elements at even positions are in the lower halves of 32-bit words:
// they make one vector, those at odd positions the other, and nothing has to change lanes.
struct BFloat16 {
  using Element = float;
  static constexpr int kParts = 2;

  static CTRAN_INLINE void decode(Raw raw, Floats* parts) {
    parts[0] = (Floats)(raw << 16);
    parts[1] = (Floats)(raw & 0xffff0000u);
  }

  static CTRAN_INLINE Raw encode(const Floats* parts) {
    return rounded(parts[0]) >> 16 | (rounded(parts[1]) & 0xffff0000u);
  }

 private:
  static CTRAN_INLINE Raw rounded(Floats value) {
    const Raw bits = (Raw)value;
    const Raw nearestEven = bits + 0x7fffu + (bits >> 16 & 1u);
    return (value == value) ? nearestEven : Raw{} + 0x7fc00000u;
  }
};

// The formats of `1 + kExponent + kMantissa` = 8 or 16 bits, by integer arithmetic in 32-bit lanes
// (signed: magnitudes fit, and comparisons are cheaper).
// `kIeee`: the largest exponent is for infinities and NaNs; otherwise only the largest code is a
// NaN.
template <int kExponent, int kMantissa, bool kIeee>
struct SmallFloat {
  using Element = float;
  static constexpr int kBits = 1 + kExponent + kMantissa;
  static constexpr int kParts = 32 / kBits;

  static CTRAN_INLINE void decode(Raw raw, Floats* parts) {
    for (int p = 0; p < kParts; ++p) parts[p] = toFloat(raw >> (p * kBits));
  }

  static CTRAN_INLINE Raw encode(const Floats* parts) {
    Raw raw = fromFloat(parts[0]);
    for (int p = 1; p < kParts; ++p) raw |= fromFloat(parts[p]) << (p * kBits);
    return raw;
  }

 private:
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr int kShift = 23 - kMantissa;  ///< from a mantissa here to one of fp32
  static constexpr uint32_t kSign = 1u << (kBits - 1);
  static constexpr int kRebias = (127 - kBias) << 23;
  static constexpr int kInfinity = ((1 << kExponent) - 1) << kMantissa;  ///< if kIeee
  static constexpr int kNaN = kIeee ? kInfinity | 1 << (kMantissa - 1) : kSign - 1;
  static constexpr int kFirstSpecial = kIeee ? kInfinity : kNaN;
  static constexpr int kFloatInfinity = 0x7f800000;

  // Ignores the bits above kBits.
  static CTRAN_INLINE Floats toFloat(Raw code) {
    const Ints magnitude = (Ints)(code & (kSign - 1));
    const Ints normal = (magnitude << kShift) + kRebias;
    // Exact: the value is magnitude * 2^(1 - kBias - kMantissa), a power of two that fp32 has.
    constexpr float kUnit = 1.0f / (1u << (kBias - 1)) / (1u << kMantissa);
    const Ints subnormal = (Ints)(__builtin_convertvector(magnitude, Floats) * kUnit);
    const Ints special = (magnitude << kShift) | kFloatInfinity;
    Ints bits = magnitude < (1 << kMantissa) ? subnormal : normal;
    bits = magnitude >= kFirstSpecial ? special : bits;
    return (Floats)((Raw)bits | (code & kSign) << (32 - kBits));
  }

  static CTRAN_INLINE Raw fromFloat(Floats value) {
    const Raw sign = (Raw)value >> 31 << (kBits - 1);
    const Ints magnitude = (Ints)value & 0x7fffffff;
    // To nearest even by adding just less than half a unit, plus one if the last bit kept is odd.
    const Ints odd = magnitude >> kShift & 1;
    const Ints normal = (magnitude - kRebias + ((1 << (kShift - 1)) - 1) + odd) >> kShift;
    // Adding a number whose unit in the last place is the smallest subnormal makes fp32's own
    // rounding do the work, and leaves the code in the low bits of the sum.
    constexpr int kMagic = (127 - kBias + 1 + kShift) << 23;
    const Ints subnormal = (Ints)((Floats)magnitude + (Floats)(Ints{} + kMagic)) - kMagic;
    // Smaller numbers round up to the first special code by themselves.
    constexpr int kOverflow = (kFirstSpecial << kShift) + kRebias;
    constexpr int kSmallestNormal = (128 - kBias) << 23;
    Ints code = magnitude < kSmallestNormal ? subnormal : normal;
    code = magnitude >= kOverflow ? Ints{} + kFirstSpecial : code;
    code = magnitude > kFloatInfinity ? Ints{} + kNaN : code;
    return (Raw)code | sign;
  }
};

using Float8E4M3 = SmallFloat<4, 3, false>;
using Float8E5M2 = SmallFloat<5, 2, true>;

// fp16 has instructions almost everywhere. Lower and upper half of the vector make the parts.
#if defined(__AVX512BW__)
struct Float16 {
  using Element = float;
  static constexpr int kParts = 2;
  static CTRAN_INLINE void decode(Raw raw, Floats* parts) {
    parts[0] = (Floats)_mm512_cvtph_ps(_mm512_castsi512_si256((__m512i)raw));
    parts[1] = (Floats)_mm512_cvtph_ps(_mm512_extracti64x4_epi64((__m512i)raw, 1));
  }
  static CTRAN_INLINE Raw encode(const Floats* parts) {
    const __m256i low = _mm512_cvtps_ph((__m512)parts[0], _MM_FROUND_TO_NEAREST_INT);
    const __m256i high = _mm512_cvtps_ph((__m512)parts[1], _MM_FROUND_TO_NEAREST_INT);
    return (Raw)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
};
#elif defined(__AVX2__) && defined(__F16C__)
struct Float16 {
  using Element = float;
  static constexpr int kParts = 2;
  static CTRAN_INLINE void decode(Raw raw, Floats* parts) {
    parts[0] = (Floats)_mm256_cvtph_ps(_mm256_castsi256_si128((__m256i)raw));
    parts[1] = (Floats)_mm256_cvtph_ps(_mm256_extracti128_si256((__m256i)raw, 1));
  }
  static CTRAN_INLINE Raw encode(const Floats* parts) {
    const __m128i low = _mm256_cvtps_ph((__m256)parts[0], _MM_FROUND_TO_NEAREST_INT);
    const __m128i high = _mm256_cvtps_ph((__m256)parts[1], _MM_FROUND_TO_NEAREST_INT);
    return (Raw)_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
  }
};
#elif defined(__aarch64__)
struct Float16 {
  using Element = float;
  static constexpr int kParts = 2;
  static CTRAN_INLINE void decode(Raw raw, Floats* parts) {
    const float16x8_t halves = vreinterpretq_f16_u32((uint32x4_t)raw);
    parts[0] = (Floats)vcvt_f32_f16(vget_low_f16(halves));
    parts[1] = (Floats)vcvt_high_f32_f16(halves);
  }
  static CTRAN_INLINE Raw encode(const Floats* parts) {
    const float16x4_t low = vcvt_f16_f32((float32x4_t)parts[0]);
    return (Raw)vreinterpretq_u32_f16(vcvt_high_f16_f32(low, (float32x4_t)parts[1]));
  }
};
#else
using Float16 = SmallFloat<5, 10, true>;
#endif

}  // namespace
}  // namespace ctran
