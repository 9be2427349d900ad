#pragma once

#include <span>
#include <string>

namespace ctran {

/// "0, 3"
inline std::string listed(std::span<const int> ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace ctran
