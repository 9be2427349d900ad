#pragma once

#include "ctran/gpu/device/element.cuh"

// Reductions of packets, element by element, in rank order: acc = x0, acc = op(acc, x1), ... so
// every rank that reduces the same contributions gets the same bits. Small floats are combined as
// fp32 and rounded once.

namespace ctran::device {

// Integers wrap around, as they do on the CPU; floats are left to the hardware.
template <class W>
inline constexpr bool kIsInteger = static_cast<W>(0.5) == static_cast<W>(0);

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

/// A NaN on either side wins; of two equal values the first.
struct Min {
  template <class W>
  static CTRAN_INLINE W combine(W a, W b) {
    return isNan(b) || b < a ? (isNan(a) ? a : b) : a;
  }
};

struct Max {
  template <class W>
  static CTRAN_INLINE W combine(W a, W b) {
    return isNan(b) || b > a ? (isNan(a) ? a : b) : a;
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

/// What a rank contributes: its input, scaled where the operation says so.
template <class Element, class Op>
CTRAN_INLINE Payload contribution(const Buffer<const Element>& input, u64 packet, double factor) {
  const Payload raw = read<Element>(input, packet);
  if constexpr (!kScales<Op>) {
    return raw;
  } else {
    Payload scaled = {};
    CTRAN_UNROLL
    for (u32 k = 0; k < kPerPacket<Element>; ++k) {
      using W = Wide<Element>;
      Element x;
      narrow(static_cast<W>(widen(extract<Element>(raw, k)) * static_cast<W>(factor)), x);
      insert<Element>(scaled, k, x);
    }
    return scaled;
  }
}

template <class Element, class Op, u32 kRanks>
CTRAN_INLINE Payload reduce(const Payload (&parts)[kRanks]) {
  using W = Wide<Element>;
  Payload result = {};
  CTRAN_UNROLL
  for (u32 k = 0; k < kPerPacket<Element>; ++k) {
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
