// The operations, on vectors of one kind of element.
#pragma once

#include "ctran/reduce/vector.inl"

namespace ctran {
namespace {

struct Add {
  template <class V>
  static CTRAN_INLINE V apply(V a, V b) {
    return a + b;
  }
};

struct Multiply {
  template <class V>
  static CTRAN_INLINE V apply(V a, V b) {
    return a * b;
  }
};

// On vectors of (real, imaginary) pairs: (ac - bd) + (ad + bc)i. The arithmetic is on whole
// vectors; from the plain formula, element by element, GCC makes fused multiply-adds whatever it
// was told.
struct MultiplyComplex {
  template <class V>
  static CTRAN_INLINE V apply(V x, V y) {
    using Bits = decltype(x < y);
    V a, b, dc;
    Bits minus = {};
    for (size_t i = 0; i < sizeof(V) / sizeof(x[0]); i += 2) {
      a[i] = a[i + 1] = x[i];
      b[i] = b[i + 1] = x[i + 1];
      dc[i] = y[i + 1];
      dc[i + 1] = y[i];
      minus[i] = decltype(+minus[0]){1} << (8 * sizeof(x[0]) - 1);
    }
    return a * y + (V)((Bits)(b * dc) ^ minus);
  }
};

struct And {
  template <class V>
  static CTRAN_INLINE V apply(V a, V b) {
    return a & b;
  }
};

struct Or {
  template <class V>
  static CTRAN_INLINE V apply(V a, V b) {
    return a | b;
  }
};

struct Xor {
  template <class V>
  static CTRAN_INLINE V apply(V a, V b) {
    return a ^ b;
  }
};

struct IntegerMin {
  template <class V>
  static CTRAN_INLINE V apply(V a, V b) {
    return a < b ? a : b;
  }
};

struct IntegerMax {
  template <class V>
  static CTRAN_INLINE V apply(V a, V b) {
    return a > b ? a : b;
  }
};

// A NaN on the right is chosen because it compares false; one on the left has to be asked for.
// Equal numbers have equal bits, but for zeros: there `|` keeps a minus sign, `&` drops it.
struct FloatMin {
  template <class V>
  static CTRAN_INLINE V apply(V a, V b) {
    using Bits = decltype(a < b);
    const V lesser = (a < b) ? a : b;
    const V equal = (V)((Bits)a | (Bits)b);
    const V number = (a == b) ? equal : lesser;
    return (a == a) ? number : a;
  }
};

struct FloatMax {
  template <class V>
  static CTRAN_INLINE V apply(V a, V b) {
    using Bits = decltype(a < b);
    const V greater = (a > b) ? a : b;
    const V equal = (V)((Bits)a & (Bits)b);
    const V number = (a == b) ? equal : greater;
    return (a == a) ? number : a;
  }
};

// What happens to the accumulated value before it is rounded and stored.

struct AsIs {
  template <class V, class T>
  static CTRAN_INLINE V apply(V value, T) {
    return value;
  }
};

struct DividedBy {
  template <class V, class T>
  static CTRAN_INLINE V apply(V value, T divisor) {
    return value / divisor;
  }
};

// Integers of type `Number`, in vectors of the unsigned type of that size: rounded towards zero. A
// divisor of 0 stands for one beyond all numbers.
template <class Number>
struct QuotientBy {
  template <class V, class T>
  static CTRAN_INLINE V apply(V value, T divisor) {
    using Wide = decltype(Number{} + 0);
    if (divisor == 0) return V{};
    for (size_t i = 0; i < sizeof(V) / sizeof(T); ++i) {
      const auto number = static_cast<Number>(value[i]);
      value[i] = static_cast<T>(static_cast<Wide>(number) / static_cast<Wide>(divisor));
    }
    return value;
  }
};

struct MultipliedBy {
  template <class V, class T>
  static CTRAN_INLINE V apply(V value, T factor) {
    return value * factor;
  }
};

}  // namespace
}  // namespace ctran
