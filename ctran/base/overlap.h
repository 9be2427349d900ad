#pragma once

#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace ctran {

/// A range of memory, which is not read here: it may be a GPU's.
struct MemoryRange {
  const void* data = nullptr;
  size_t bytes = 0;

  uintptr_t begin() const { return reinterpret_cast<uintptr_t>(data); }
  /// Returns the end, or the last address if the range reaches beyond it.
  uintptr_t end() const {
    uintptr_t end = 0;
    return __builtin_add_overflow(begin(), bytes, &end) ? UINTPTR_MAX : end;
  }
};

/// Returns whether some byte belongs to both ranges.
inline bool overlap(const MemoryRange& a, const MemoryRange& b) {
  return a.bytes != 0 && b.bytes != 0 && a.begin() < b.end() && b.begin() < a.end();
}

/// Formats a range for people: "[0x7f00, 0x7f40)".
inline std::string nameOf(const MemoryRange& range) {
  char text[48];
  std::snprintf(text, sizeof text, "[0x%" PRIxPTR ", 0x%" PRIxPTR ")", range.begin(), range.end());
  return text;
}

}  // namespace ctran
