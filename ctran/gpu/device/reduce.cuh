#pragma once

#include "ctran/gpu/device/element.cuh"

// Reductions of packets and of sixteen bytes, element by element, in rank order: acc = x0, acc =
// op(acc, x1), ... so every rank that reduces the same contributions gets the same bits. Small
// floats are combined as fp32 and rounded once.

namespace ctran::device {

// Integers wrap around, as they do on the CPU; floats are left to the hardware.
template <class W>
inline constexpr bool kIsInteger = static_cast<W>(0.5) == static_cast<W>(0);
template <class T>
inline constexpr bool kIsInteger<Complex<T>> = false;

template <class W>
CTRAN_INLINE bool isNan(W x) {
  return x != x;
}

struct Sum {
  template <class W>
  static CTRAN_INLINE W combine(W a, W b) {
    if constexpr (kIsInteger<W>)
      return static_cast<W>(static_cast<u64>(a) + static_cast<u64>(b));
    else
      return a + b;
  }
};

struct Product {
  template <class W>
  static CTRAN_INLINE W combine(W a, W b) {
    if constexpr (kIsInteger<W>)
      return static_cast<W>(static_cast<u64>(a) * static_cast<u64>(b));
    else
      return a * b;
  }
};

template <class W>
CTRAN_INLINE bool isNegativeZero(W x) {
  if constexpr (kIsInteger<W>) {
    return false;
  } else if constexpr (sizeof(W) == 8) {
    return bitCast<u64>(x) == 1ull << 63;
  } else {
    return bitCast<u32>(x) == 1u << 31;
  }
}

/// A NaN on either side wins; -0 is less than +0.
struct Min {
  template <class W>
  static CTRAN_INLINE W combine(W a, W b) {
    return isNan(b) || b < a || (b == a && isNegativeZero(b)) ? (isNan(a) ? a : b) : a;
  }
};

struct Max {
  template <class W>
  static CTRAN_INLINE W combine(W a, W b) {
    return isNan(b) || b > a || (b == a && isNegativeZero(a)) ? (isNan(a) ? a : b) : a;
  }
};

struct BitAnd {
  template <class W>
  static CTRAN_INLINE W combine(W a, W b) {
    return static_cast<W>(a & b);
  }
};

struct BitOr {
  template <class W>
  static CTRAN_INLINE W combine(W a, W b) {
    return static_cast<W>(a | b);
  }
};

struct BitXor {
  template <class W>
  static CTRAN_INLINE W combine(W a, W b) {
    return static_cast<W>(a ^ b);
  }
};

/// The sum divided by the number of ranks, in the wide type, before the one rounding.
struct Avg : Sum {
  static constexpr bool kDivides = true;
};

/// Every rank's contribution times its own factor, rounded to the element type, then the sum.
struct PremulSum : Sum {
  static constexpr bool kScales = true;
};

template <class Op>
inline constexpr bool kDivides = requires {
  Op::kDivides;
};
template <class Op>
inline constexpr bool kScales = requires {
  Op::kScales;
};

/// Elements of a payload, or of sixteen bytes.
template <class Element, class Words>
inline constexpr u32 kPer = sizeof(Words) / sizeof(Element);

template <class Element, class Op, class Words>
CTRAN_INLINE Words scaled(const Words& raw, double factor) {
  if constexpr (!kScales<Op>) {
    return raw;
  } else {
    Words result = {};
    CTRAN_UNROLL
    for (u32 k = 0; k < kPer<Element, Words>; ++k) {
      using W = Wide<Element>;
      Element x;
      narrow(static_cast<W>(widen(extract<Element>(raw, k)) * static_cast<W>(factor)), x);
      insert<Element>(result, k, x);
    }
    return result;
  }
}

/// What a rank contributes: its input, scaled where the operation says so.
template <class Element, class Op>
CTRAN_INLINE Payload contribution(const Buffer<const Element>& input, u64 packet, double factor) {
  return scaled<Element, Op>(read<Element>(input, packet), factor);
}

template <class Element, class Op, u32 kRanks, class Words>
CTRAN_INLINE Words reduce(const Words (&parts)[kRanks]) {
  using W = Wide<Element>;
  Words result = {};
  CTRAN_UNROLL
  for (u32 k = 0; k < kPer<Element, Words>; ++k) {
    W sum = widen(extract<Element>(parts[0], k));
    CTRAN_UNROLL
    for (u32 rank = 1; rank < kRanks; ++rank) {
      sum = Op::combine(sum, static_cast<W>(widen(extract<Element>(parts[rank], k))));
    }
    if constexpr (kDivides<Op>) sum = sum / static_cast<W>(kRanks);
    Element x;
    narrow(sum, x);
    insert<Element>(result, k, x);
  }
  return result;
}

}  // namespace ctran::device
