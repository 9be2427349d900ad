#include "ctran/memory/stream_copy.h"

#include <cstdint>
#include <cstring>
#include <fstream>

#include "ctran/reduce/reduce.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace ctran {

// The race detector does not see such stores.
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)

namespace {

void streamLines(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kCacheLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
}

/// A store of a whole line needs no buffer in which parts of it come together.
__attribute__((target("avx512f"))) void streamWideLines(std::byte* to, const std::byte* from,
                                                        size_t bytes) {
  for (size_t at = 0; at < bytes; at += kCacheLine) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), _mm512_loadu_si512(from + at));
  }
}

}  // namespace

void streamCopy(std::byte* to, const std::byte* from, size_t bytes) {
  static const auto lines = isaInUse() == Isa::Avx512 ? streamWideLines : streamLines;
  if (bytes < 2 * kCacheLine) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  // Whole lines are written at once; a part of one would be read first.
  const size_t head = -reinterpret_cast<uintptr_t>(to) % kCacheLine;
  if (head > 0) std::memcpy(to, from, head);
  const size_t whole = (bytes - head) / kCacheLine * kCacheLine;
  lines(to + head, from + head, whole);
  const size_t tail = head + whole;
  if (tail < bytes) std::memcpy(to + tail, from + tail, bytes - tail);
}

void streamFence() { _mm_sfence(); }

#else

void streamCopy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void streamFence() {}

#endif

size_t lastLevelCacheBytes() {
  static const size_t bytes = [] {
    // Not sysconf: it may report the sum over all such caches of a processor.
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
    size_t kilobytes = 0;
    return file >> kilobytes ? kilobytes << 10 : size_t{8} << 20;
  }();
  return bytes;
}

}  // namespace ctran
