#pragma once

#include <string>
#include <vector>

namespace ctran {

/// "0, 3"
inline std::string listed(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace ctran
