#include "tests/gpu/litmus/reference.h"

#include <algorithm>
#include <bit>

namespace litmus {
namespace {

template <class T>
T at(const Bytes& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void set(Bytes& bytes, size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

// Conversions by the definition of the formats. Inputs here are finite and in range.
float widenBf16(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

uint16_t narrowBf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float widenHalf(uint16_t x) {
  const int exponent = x >> 10 & 31;
  const float mantissa = static_cast<float>(x & 1023);
  const float magnitude = exponent == 0
                              ? mantissa * 0x1p-24f
                              : (mantissa + 1024) * 0x1p-25f * static_cast<float>(1u << exponent);
  return x & 0x8000 ? -magnitude : magnitude;
}

uint16_t narrowHalf(float x) {
  const uint16_t sign = std::bit_cast<uint32_t>(x) >> 16 & 0x8000;
  const float magnitude = x < 0 ? -x : x;
  // Halves are ordered like their bits: find the two neighbours and round to the nearest, ties to
  // even.
  uint32_t low = 0, high = 0x7bff;
  while (low < high) {
    const uint32_t middle = (low + high + 1) / 2;
    if (widenHalf(static_cast<uint16_t>(middle)) <= magnitude)
      low = middle;
    else
      high = middle - 1;
  }
  const float below = magnitude - widenHalf(static_cast<uint16_t>(low));
  const float above = widenHalf(static_cast<uint16_t>(low + 1)) - magnitude;
  if (above < below || (above == below && (low & 1))) ++low;
  return static_cast<uint16_t>(sign | low);
}

template <class W>
W combine(const std::string& op, W a, W b) {
  const bool sum = op == "Sum" || op == "Avg" || op == "PremulSum";
  if constexpr (std::is_integral_v<W>) {  // wraps around
    if (sum) return static_cast<W>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    if (op == "Product") return static_cast<W>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
  if (sum) return static_cast<W>(a + b);
  if (op == "Product") return static_cast<W>(a * b);
  if (op == "Min") return std::min(a, b);
  if (op == "Max") return std::max(a, b);
  if constexpr (std::is_integral_v<W>) {
    if (op == "BitXor") return static_cast<W>(a ^ b);
    if (op == "BitOr") return static_cast<W>(a | b);
    if (op == "BitAnd") return static_cast<W>(a & b);
  }
  throw std::invalid_argument("no reference for " + op);
}

template <class Stored, class W>
Bytes reduceAs(const std::string& op, const std::vector<Bytes>& inputs,
               const std::vector<double>& factors, W (*widen)(Stored), Stored (*narrow)(W)) {
  const size_t count = inputs[0].size() / sizeof(Stored);
  Bytes result(inputs[0].size());
  for (size_t i = 0; i < count; ++i) {
    W sum{};
    for (size_t rank = 0; rank < inputs.size(); ++rank) {
      W x = widen(at<Stored>(inputs[rank], i));
      if (op == "PremulSum") x = widen(narrow(static_cast<W>(x * static_cast<W>(factors[rank]))));
      sum = rank == 0 ? x : combine<W>(op, sum, x);
    }
    if (op == "Avg") sum = static_cast<W>(sum / static_cast<W>(inputs.size()));
    set<Stored>(result, i, narrow(sum));
  }
  return result;
}

template <class T>
Bytes reduceItself(const std::string& op, const std::vector<Bytes>& inputs,
                   const std::vector<double>& factors) {
  auto same = [](T x) { return x; };
  return reduceAs<T, T>(op, inputs, factors, +same, +same);
}

}  // namespace

size_t elementSize(const std::string& element) {
  if (element == "u8" || element == "i8") return 1;
  if (element == "BFloat16" || element == "Float16") return 2;
  return element == "f64" || element == "u64" ? 8 : 4;
}

Bytes inputOf(const std::string& element, int rank, size_t count, unsigned seed) {
  Bytes bytes(count * elementSize(element));
  for (size_t i = 0; i < count; ++i) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + static_cast<uint32_t>(rank) * 40503u +
                 seed * 2246822519u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    const float real = static_cast<float>(static_cast<int>(x % 4001) - 2000) / 256.0f;
    if (element == "BFloat16")
      set<uint16_t>(bytes, i, narrowBf16(real));
    else if (element == "Float16")
      set<uint16_t>(bytes, i, narrowHalf(real));
    else if (element == "f32")
      set<float>(bytes, i, real * 1.37f);
    else if (element == "f64")
      set<double>(bytes, i, real * 1.37);
    else if (element == "u8")
      set<uint8_t>(bytes, i, static_cast<uint8_t>(x));
    else if (element == "i8")
      set<int8_t>(bytes, i, static_cast<int8_t>(x));
    else if (element == "i32" || element == "u32")
      set<uint32_t>(bytes, i, x);
    else
      set<uint64_t>(bytes, i, x * uint64_t{0x100000001});
  }
  return bytes;
}

Bytes allReduced(const std::string& element, const std::string& op,
                 const std::vector<Bytes>& inputs, const std::vector<double>& factors) {
  if (element == "BFloat16") {
    return reduceAs<uint16_t, float>(op, inputs, factors, widenBf16, narrowBf16);
  }
  if (element == "Float16") {
    return reduceAs<uint16_t, float>(op, inputs, factors, widenHalf, narrowHalf);
  }
  if (element == "f32") return reduceItself<float>(op, inputs, factors);
  if (element == "f64") return reduceItself<double>(op, inputs, factors);
  if (element == "u8") return reduceItself<uint8_t>(op, inputs, factors);
  if (element == "i8") return reduceItself<int8_t>(op, inputs, factors);
  if (element == "i32") return reduceItself<int32_t>(op, inputs, factors);
  if (element == "u32") return reduceItself<uint32_t>(op, inputs, factors);
  return reduceItself<uint64_t>(op, inputs, factors);
}

}  // namespace litmus
