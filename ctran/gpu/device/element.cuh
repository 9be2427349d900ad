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

#if CTRAN_ON_GPU

struct Float16 {
  u16 bits;
};

CTRAN_INLINE float widen(Float16 x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
}

CTRAN_INLINE void narrow(float x, Float16& to) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
}

#endif

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

template <class Element>
CTRAN_INLINE Element extract(const Payload& payload, u32 k) {
  if constexpr (sizeof(Element) == 8) {
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
template <class Element>
CTRAN_INLINE void insert(Payload& payload, u32 k, Element x) {
  if constexpr (sizeof(Element) == 8) {
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
  const bool whole = buffer.words && first + kPerPacket<Element> <= buffer.count;
  if (whole) {
    const u32* words = reinterpret_cast<const u32*>(buffer.data + first);
    CTRAN_UNROLL
    for (u32 k = 0; k < kWords<Element>; ++k) payload.w[k] = words[k];
  } else if constexpr (sizeof(Element) <= 4) {
    CTRAN_UNROLL
    for (u32 k = 0; k < kWords<Element>; ++k) {
      payload.w[k] =
          readElements<Element>(buffer.data, first + k * (4 / sizeof(Element)), buffer.count);
    }
  }
  return payload;
}

template <class Element>
CTRAN_INLINE void write(const Buffer<Element>& buffer, u64 packet, const Payload& payload) {
  const u64 first = packet * kPerPacket<Element>;
  const bool whole = buffer.words && first + kPerPacket<Element> <= buffer.count;
  if (whole) {
    u32* words = reinterpret_cast<u32*>(buffer.data + first);
    CTRAN_UNROLL
    for (u32 k = 0; k < kWords<Element>; ++k) words[k] = payload.w[k];
  } else if constexpr (sizeof(Element) <= 4) {
    CTRAN_UNROLL
    for (u32 k = 0; k < kWords<Element>; ++k) {
      writeElements<Element>(buffer.data, first + k * (4 / sizeof(Element)), buffer.count,
                             payload.w[k]);
    }
  }
}

}  // namespace ctran::device
