// The vectors of the instruction set that this file is compiled for, and how to load them.
//
// The .inl files are compiled once per instruction set. All they define has internal linkage, and
// they use nothing of the standard library: a function shared with other files could be the copy
// that needs an instruction this machine does not have.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define CTRAN_INLINE inline __attribute__((always_inline))

namespace ctran {
namespace {

#if defined(__AVX512BW__)
constexpr size_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr size_t kVectorBytes = 32;
#else
constexpr size_t kVectorBytes = 16;
#endif

template <class T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vector = typename VectorOf<T>::Type;

using Raw = Vector<uint32_t>;  ///< a vector of bytes as it lies in memory
using Floats = Vector<float>;
using Ints = Vector<int32_t>;

CTRAN_INLINE Raw load(const std::byte* from) {
  Raw raw;
  __builtin_memcpy(&raw, from, sizeof raw);
  return raw;
}

CTRAN_INLINE void store(std::byte* to, Raw raw) { __builtin_memcpy(to, &raw, sizeof raw); }

// The first `bytes` < kVectorBytes bytes of a vector; no other memory is touched, not even read.
#if defined(__AVX512BW__)
CTRAN_INLINE Raw loadPartial(const std::byte* from, size_t bytes) {
  return (Raw)_mm512_maskz_loadu_epi8((uint64_t{1} << bytes) - 1, from);
}

CTRAN_INLINE void storePartial(std::byte* to, Raw raw, size_t bytes) {
  _mm512_mask_storeu_epi8(to, (uint64_t{1} << bytes) - 1, (__m512i)raw);
}
#else
// Built from words in registers: a vector load from where smaller stores have just been would
// stall.
__attribute__((noinline)) Raw loadPartial(const std::byte* from, size_t bytes) {
  const auto read = [&](auto whole, size_t at) {
    __builtin_memcpy(&whole, from + at, sizeof whole);
    return uint64_t{whole};
  };
  // Of 2 to 7 bytes, two reads that may overlap cover all.
  const auto word = [&](size_t at) -> uint64_t {
    if (bytes <= at) return 0;
    const size_t rest = bytes - at;
    if (rest >= 8) return read(uint64_t{}, at);
    if (rest >= 4) return read(uint32_t{}, at) | read(uint32_t{}, bytes - 4) << (8 * rest - 32);
    if (rest >= 2) return read(uint16_t{}, at) | read(uint16_t{}, bytes - 2) << (8 * rest - 16);
    return read(uint8_t{}, at);
  };
  Vector<uint64_t> words;
  for (size_t i = 0; i < kVectorBytes / 8; ++i) words[i] = word(8 * i);
  return (Raw)words;
}

__attribute__((noinline)) void storePartial(std::byte* to, Raw raw, size_t bytes) {
  std::byte from[kVectorBytes];
  store(from, raw);
  size_t at = 0;
  for (; at + 8 <= bytes; at += 8) __builtin_memcpy(to + at, from + at, 8);
  const auto piece = [&](size_t size) {
    __builtin_memcpy(to + at, from + at, size);
    at += size;
  };
  if (bytes & 4) piece(4);
  if (bytes & 2) piece(2);
  if (bytes & 1) piece(1);
}
#endif

}  // namespace
}  // namespace ctran
