#include "tests/unit/support/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

namespace ctran::reference {
namespace {

/// The numbers that accumulate: fp32 for small floats, the type itself otherwise.
template <class T>
T apply(ReduceKind kind, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    switch (kind) {
      case ReduceKind::Sum:
      case ReduceKind::Avg:
        return static_cast<T>(x + y);
      case ReduceKind::Product:
        return static_cast<T>(x * y);
      case ReduceKind::BitAnd:
        return static_cast<T>(x & y);
      case ReduceKind::BitOr:
        return static_cast<T>(x | y);
      case ReduceKind::BitXor:
        return static_cast<T>(x ^ y);
      case ReduceKind::Min:
        return b < a ? b : a;
      default:
        return b > a ? b : a;
    }
  } else {
    switch (kind) {
      case ReduceKind::Product:
        return a * b;
      case ReduceKind::Min:
      case ReduceKind::Max: {
        if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
        if (a == b) return std::signbit(a) == (kind == ReduceKind::Min) ? a : b;
        return (a < b) == (kind == ReduceKind::Min) ? a : b;
      }
      default:
        return a + b;
    }
  }
}

bool applyBool(ReduceKind kind, bool a, bool b) {
  switch (kind) {
    case ReduceKind::Sum:
    case ReduceKind::Max:
    case ReduceKind::BitOr:
      return a || b;
    case ReduceKind::BitXor:
      return a != b;
    default:
      return a && b;
  }
}

/// Not operator*, which takes care of infinities; and volatile, so that nothing is fused.
template <class T>
std::complex<T> multiply(std::complex<T> a, std::complex<T> b) {
  const volatile T rr = a.real() * b.real(), ii = a.imag() * b.imag();
  const volatile T ri = a.real() * b.imag(), ir = a.imag() * b.real();
  return {rr - ii, ri + ir};
}

}  // namespace

double decode(uint32_t code, const SmallFormat& f) {
  const double sign = code >> (f.bits - 1) ? -1 : 1;
  const uint32_t magnitude = code & largestMagnitude(f);
  if (f.ieee && magnitude == infinityCode(f)) return sign * std::numeric_limits<double>::infinity();
  if (magnitude > (f.ieee ? infinityCode(f) : largestMagnitude(f) - 1)) return std::nan("");
  const int exponent = static_cast<int>(magnitude >> f.mantissa);
  const double fraction = magnitude & ((1u << f.mantissa) - 1);
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - f.bias - f.mantissa);
  return sign * std::ldexp(fraction + (1 << f.mantissa), exponent - f.bias - f.mantissa);
}

uint32_t encode(double value, const SmallFormat& f) {
  const uint32_t sign = std::signbit(value) ? 1u << (f.bits - 1) : 0;
  if (std::isnan(value)) return sign | largestMagnitude(f);
  const uint32_t beyond = f.ieee ? infinityCode(f) : largestMagnitude(f);
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | beyond;
  const int exponent = magnitude == 0 ? 1 - f.bias : std::max(std::ilogb(magnitude), 1 - f.bias);
  // In units of the last place; nearbyint rounds halves to even.
  const auto units =
      static_cast<uint64_t>(std::nearbyint(std::ldexp(magnitude, f.mantissa - exponent)));
  // A carry out of the mantissa lands in the exponent, as it should.
  const uint64_t code = (static_cast<uint64_t>(exponent + f.bias - 1) << f.mantissa) + units;
  return sign | static_cast<uint32_t>(code >= beyond ? beyond : code);
}

void reduce(ReduceKind kind, DataType type, std::byte* dst,
            const std::vector<const std::byte*>& src, size_t count, int divisor) {
  const size_t size = sizeOf(type);
  withFormat(type, [&](auto get, auto put) {
    for (size_t i = 0; i < count; ++i) {
      auto total = get(src[0] + i * size);
      using T = decltype(total);
      for (size_t s = 1; s < src.size(); ++s) {
        const T next = get(src[s] + i * size);
        if constexpr (std::is_same_v<T, bool>) {
          total = applyBool(kind, total, next);
        } else if constexpr (std::is_same_v<T, std::complex<float>> ||
                             std::is_same_v<T, std::complex<double>>) {
          total = kind == ReduceKind::Product ? multiply(total, next) : total + next;
        } else {
          total = apply(kind, total, next);
        }
      }
      if constexpr (!std::is_same_v<T, bool>) {
        if (kind == ReduceKind::Avg) {
          const int by = divisor > 0 ? divisor : static_cast<int>(src.size());
          if constexpr (std::is_same_v<T, uint64_t>) {
            total /= static_cast<uint64_t>(by);
          } else if constexpr (std::is_integral_v<T>) {
            total = static_cast<T>(static_cast<int64_t>(total) / by);
          } else if constexpr (std::is_floating_point_v<T>) {
            total /= static_cast<T>(by);
          } else {
            const auto real = static_cast<typename T::value_type>(by);
            total = {total.real() / real, total.imag() / real};
          }
        }
      }
      put(dst + i * size, total);
    }
  });
}

void scale(DataType type, std::byte* dst, const std::byte* src, size_t count, double factor) {
  const size_t size = sizeOf(type);
  withFormat(type, [&](auto get, auto put) {
    for (size_t i = 0; i < count; ++i) {
      auto value = get(src + i * size);
      using T = decltype(value);
      if constexpr (std::is_floating_point_v<T>) {
        value *= static_cast<T>(factor);
      } else if constexpr (!std::is_integral_v<T>) {
        const auto real = static_cast<typename T::value_type>(factor);
        value = {value.real() * real, value.imag() * real};
      }
      put(dst + i * size, value);
    }
  });
}

bool same(DataType type, const std::byte* a, const std::byte* b) {
  if (std::memcmp(a, b, sizeOf(type)) == 0) return true;
  bool equal = false;
  withFormat(type, [&](auto get, auto) {
    using T = decltype(get(a));
    const auto samePart = [](auto x, auto y) {
      using U = decltype(x);
      if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
      return std::memcmp(&x, &y, sizeof(U)) == 0;
    };
    if constexpr (std::is_floating_point_v<T>) {
      equal = std::isnan(get(a)) && std::isnan(get(b));
    } else if constexpr (!std::is_integral_v<T>) {
      equal = samePart(get(a).real(), get(b).real()) && samePart(get(a).imag(), get(b).imag());
    }
  });
  return equal;
}

}  // namespace ctran::reference
