#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

namespace ctran {

/// As much of a text as there is room for, with a zero behind it.
inline void copyText(std::span<char> to, std::string_view text) {
  const size_t length = std::min(text.size(), to.size() - 1);
  std::copy_n(text.begin(), length, to.begin());
  to[length] = 0;
}

/// Of what came from outside, where nothing says that it ends with a zero.
inline std::string_view boundedText(std::span<const char> from) {
  return {from.data(), ::strnlen(from.data(), from.size())};
}

}  // namespace ctran
