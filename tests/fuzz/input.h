// What a fuzzer is given, read as a program: numbers and bytes, and zeros where it ends.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>

namespace ctran::testing {

class Input {
 public:
  Input(const uint8_t* data, size_t size)
      : left_(reinterpret_cast<const std::byte*>(data), data == nullptr ? 0 : size) {}

  bool empty() const { return left_.empty(); }

  template <class T>
  T take() {
    T value{};
    const size_t n = std::min(sizeof value, left_.size());
    if (n > 0) std::memcpy(&value, left_.data(), n);
    left_ = left_.subspan(n);
    return value;
  }

  /// As many bytes as there are, at most.
  std::span<const std::byte> bytes(size_t count) {
    const auto taken = left_.first(std::min(count, left_.size()));
    left_ = left_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const std::byte> left_;
};

/// What must hold whatever the input is.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

inline std::string_view textOf(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), data == nullptr ? 0 : size};
}

}  // namespace ctran::testing
