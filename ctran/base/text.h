#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

namespace ctran {

/// Copies as much of a text as there is room for, and ends it with a zero.
inline void copyText(std::span<char> to, std::string_view text) {
  const size_t length = std::min(text.size(), to.size() - 1);
  std::copy_n(text.begin(), length, to.begin());
  to[length] = 0;
}

/// Returns text that came from outside, which may not end with a zero.
inline std::string_view boundedText(std::span<const char> from) {
  return {from.data(), ::strnlen(from.data(), from.size())};
}

/// Without blanks at both ends.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

}  // namespace ctran
