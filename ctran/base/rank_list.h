#pragma once

#include <algorithm>
#include <span>
#include <string>

namespace ctran {

/// Lists ranks: "0, 3"; of very many only the first: "0, 1, 2 and 131069 more".
inline std::string listed(std::span<const int> ranks) {
  constexpr size_t kMost = 64;
  std::string text;
  for (const int rank : ranks.first(std::min(ranks.size(), kMost))) {
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (ranks.size() > kMost) text += " and " + std::to_string(ranks.size() - kMost) + " more";
  return text;
}

}  // namespace ctran
