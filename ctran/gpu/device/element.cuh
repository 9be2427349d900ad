#pragma once

#include "ctran/gpu/device/packet.cuh"

// Element types: how they sit in packets, and the type they are reduced in.

namespace ctran::device {

template <class To, class From>
CTRAN_INLINE To bitCast(const From& from) {
  return __builtin_bit_cast(To, from);
}

struct BFloat16 {
  u16 bits;
};

CTRAN_INLINE float widen(BFloat16 x) { return bitCast<float>(static_cast<u32>(x.bits) << 16); }

CTRAN_INLINE void narrow(float x, BFloat16& to) {
#if CTRAN_ON_GPU
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#else
  const u32 bits = bitCast<u32>(x);
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  to.bits = nan ? 0x7fff : static_cast<u16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}

/// A float of 8 or 16 bits by integer arithmetic. `kIeee`: the largest exponent is for infinities
/// and NaNs; otherwise only the largest code is a NaN, and what is too large becomes one.
template <u32 kExponent, u32 kMantissa, bool kIeee>
struct SmallFloat {
  static constexpr u32 kBias = (1u << (kExponent - 1)) - 1;
  static constexpr u32 kShift = 23 - kMantissa;
  static constexpr u32 kSignAt = kExponent + kMantissa;
  static constexpr u32 kRebias = (127 - kBias) << 23;
  static constexpr u32 kInfinity = ((1u << kExponent) - 1) << kMantissa;
  static constexpr u32 kNan = kIeee ? kInfinity | 1u << (kMantissa - 1) : (1u << kSignAt) - 1;
  static constexpr u32 kFirstSpecial = kIeee ? kInfinity : kNan;

  static CTRAN_INLINE float decode(u32 code) {
    const u32 magnitude = code & ((1u << kSignAt) - 1);
    const float unit = 1.0f / (1u << (kBias - 1)) / (1u << kMantissa);
    u32 bits = (magnitude << kShift) + kRebias;
    if (magnitude < (1u << kMantissa)) bits = bitCast<u32>(static_cast<float>(magnitude) * unit);
    if (magnitude >= kFirstSpecial) bits = magnitude << kShift | 0x7f800000u;
    return bitCast<float>(bits | (code >> kSignAt & 1) << 31);
  }

  static CTRAN_INLINE u32 encode(float value) {
    const u32 bits = bitCast<u32>(value);
    const u32 magnitude = bits & 0x7fffffffu;
    u32 code;
    if (magnitude > 0x7f800000u) {
      code = kNan;
    } else if (magnitude < (128 - kBias) << 23) {
      // A sum whose unit in the last place is the smallest subnormal: fp32 rounds for us.
      const u32 magic = (127 - kBias + 1 + kShift) << 23;
      code = bitCast<u32>(bitCast<float>(magnitude) + bitCast<float>(magic)) - magic;
    } else {
      code =
          (magnitude - kRebias + ((1u << (kShift - 1)) - 1) + (magnitude >> kShift & 1)) >> kShift;
    }
    if (magnitude <= 0x7f800000u && code > kFirstSpecial) code = kFirstSpecial;
    return code | (bits >> 31) << kSignAt;
  }
};

struct Float16 {
  u16 bits;
};

CTRAN_INLINE float widen(Float16 x) {
#if CTRAN_ON_GPU
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
#else
  return SmallFloat<5, 10, true>::decode(x.bits);
#endif
}

CTRAN_INLINE void narrow(float x, Float16& to) {
#if CTRAN_ON_GPU
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#else
  to.bits = static_cast<u16>(SmallFloat<5, 10, true>::encode(x));
#endif
}

struct Float8E4M3 {
  u8 bits;
};

CTRAN_INLINE float widen(Float8E4M3 x) { return SmallFloat<4, 3, false>::decode(x.bits); }

CTRAN_INLINE void narrow(float x, Float8E4M3& to) {
  to.bits = static_cast<u8>(SmallFloat<4, 3, false>::encode(x));
}

struct Float8E5M2 {
  u8 bits;
};

CTRAN_INLINE float widen(Float8E5M2 x) { return SmallFloat<5, 2, true>::decode(x.bits); }

CTRAN_INLINE void narrow(float x, Float8E5M2& to) {
  to.bits = static_cast<u8>(SmallFloat<5, 2, true>::encode(x));
}

/// Any byte but 0 is true; reduced as 0 or 1.
struct Boolean {
  u8 bits;
};

CTRAN_INLINE u8 widen(Boolean x) { return x.bits != 0; }

CTRAN_INLINE void narrow(u8 x, Boolean& to) { to.bits = x; }

/// Only for products: everything else is done part by part.
template <class T>
struct Complex {
  T re, im;
  friend CTRAN_INLINE Complex operator*(const Complex& x, const Complex& y) {
    return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
  }
};

using Complex64 = Complex<f32>;
using Complex128 = Complex<f64>;

/// Everything else is reduced as it is.
template <class T>
CTRAN_INLINE T widen(T x) {
  return x;
}

template <class T>
CTRAN_INLINE void narrow(T x, T& to) {
  to = x;
}

template <class Element>
using Wide = decltype(widen(Element{}));

/// Elements per packet; an element never spans two.
template <class Element>
inline constexpr u32 kPerPacket = kPayloadWords * 4 / sizeof(Element);

template <class Element>
CTRAN_INLINE u64 packetsFor(u64 count) {
  return (count + kPerPacket<Element> - 1) / kPerPacket<Element>;
}

/// One for nothing: afterwards all have heard of all, without which epochs run apart.
template <class Element>
CTRAN_INLINE u64 packetsToAll(u64 count) {
  return count == 0 ? 1 : packetsFor<Element>(count);
}

/// Element k of a payload, or of sixteen bytes.
template <class Element, class Words>
CTRAN_INLINE Element extract(const Words& payload, u32 k) {
  if constexpr (sizeof(Element) == 16) {
    return bitCast<Element>(payload);
  } else if constexpr (sizeof(Element) == 8) {
    return bitCast<Element>(payload.w[2 * k] | static_cast<u64>(payload.w[2 * k + 1]) << 32);
  } else if constexpr (sizeof(Element) == 4) {
    return bitCast<Element>(payload.w[k]);
  } else if constexpr (sizeof(Element) == 2) {
    return bitCast<Element>(static_cast<u16>(payload.w[k / 2] >> k % 2 * 16));
  } else {
    return bitCast<Element>(static_cast<u8>(payload.w[k / 4] >> k % 4 * 8));
  }
}

/// `payload` must be zero where nothing has been inserted yet.
template <class Element, class Words>
CTRAN_INLINE void insert(Words& payload, u32 k, Element x) {
  if constexpr (sizeof(Element) == 16) {
    payload = bitCast<Words>(x);
  } else if constexpr (sizeof(Element) == 8) {
    const u64 bits = bitCast<u64>(x);
    payload.w[2 * k] = static_cast<u32>(bits);
    payload.w[2 * k + 1] = static_cast<u32>(bits >> 32);
  } else if constexpr (sizeof(Element) == 4) {
    payload.w[k] = bitCast<u32>(x);
  } else if constexpr (sizeof(Element) == 2) {
    payload.w[k / 2] |= static_cast<u32>(bitCast<u16>(x)) << k % 2 * 16;
  } else {
    payload.w[k / 4] |= static_cast<u32>(bitCast<u8>(x)) << k % 4 * 8;
  }
}

/// Words of a payload that hold elements; an 8-byte element leaves the third one alone.
template <class Element>
inline constexpr u32 kWords = kPerPacket<Element> * sizeof(Element) / 4;

/// A user's buffer of `count` elements, aligned as its elements are, read and written in packets:
/// by words where the address allows, element by element elsewhere.
template <class T>
struct Buffer {
  T* data;
  u64 count;
  bool words;
};

template <class T>
CTRAN_INLINE Buffer<T> bufferOf(T* data, u64 count) {
  return {data, count, reinterpret_cast<u64>(data) % 4 == 0};
}

/// The word made of elements `at`, at + 1, ...; elements beyond the end are zero. Out of line, so
/// that it costs the common path neither registers nor code.
template <class Element>
CTRAN_NOINLINE u32 readElements(const Element* data, u64 at, u64 count) {
  constexpr u32 kPer = 4 / sizeof(Element);
  Payload one = {};
  for (u32 k = 0; k < kPer; ++k) {
    if (at + k < count) insert<Element>(one, k, data[at + k]);
  }
  return one.w[0];
}

template <class Element>
CTRAN_NOINLINE void writeElements(Element* data, u64 at, u64 count, u32 word) {
  constexpr u32 kPer = 4 / sizeof(Element);
  const Payload one = {{word}};
  for (u32 k = 0; k < kPer; ++k) {
    if (at + k < count) data[at + k] = extract<Element>(one, k);
  }
}

/// Packet `packet` of the buffer, which may lie partly or wholly beyond its end.
template <class Element>
CTRAN_INLINE Payload read(const Buffer<const Element>& buffer, u64 packet) {
  Payload payload = {};
  const u64 first = packet * kPerPacket<Element>;
  if constexpr (sizeof(Element) == 8) {
    if (first < buffer.count) insert<Element>(payload, 0, buffer.data[first]);
  } else {
    constexpr u32 kPerWord = 4 / sizeof(Element);
    CTRAN_UNROLL
    for (u32 k = 0; k < kWords<Element>; ++k) {
      const u64 at = first + k * kPerWord;
      if (buffer.words && at + kPerWord <= buffer.count) {
        payload.w[k] = *reinterpret_cast<const u32*>(buffer.data + at);
      } else if (at < buffer.count) {
        payload.w[k] = readElements<Element>(buffer.data, at, buffer.count);
      }
    }
  }
  return payload;
}

template <class Element>
CTRAN_INLINE void write(const Buffer<Element>& buffer, u64 packet, const Payload& payload) {
  const u64 first = packet * kPerPacket<Element>;
  if constexpr (sizeof(Element) == 8) {
    if (first < buffer.count) buffer.data[first] = extract<Element>(payload, 0);
  } else {
    constexpr u32 kPerWord = 4 / sizeof(Element);
    CTRAN_UNROLL
    for (u32 k = 0; k < kWords<Element>; ++k) {
      const u64 at = first + k * kPerWord;
      if (buffer.words && at + kPerWord <= buffer.count) {
        *reinterpret_cast<u32*>(buffer.data + at) = payload.w[k];
      } else if (at < buffer.count) {
        writeElements<Element>(buffer.data, at, buffer.count, payload.w[k]);
      }
    }
  }
}

}  // namespace ctran::device
