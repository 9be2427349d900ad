#include "tests/unit/support/pairwise.h"

#include <algorithm>

#include "tests/unit/support/cases.h"

namespace ctran::testing {

// Greedy: each row starts from a pair that is missing, and takes for every other parameter the
// value that covers most of what is missing with those chosen already.
std::vector<std::vector<size_t>> pairwise(const std::vector<size_t>& sizes, uint64_t seed) {
  const size_t n = sizes.size();
  const auto at = [&](size_t p, size_t q, size_t a, size_t b) {
    return p < q ? a * sizes[q] + b : b * sizes[p] + a;
  };
  std::vector<std::vector<std::vector<bool>>> covered(n, std::vector<std::vector<bool>>(n));
  for (size_t p = 0; p < n; ++p) {
    for (size_t q = p + 1; q < n; ++q) covered[p][q].assign(sizes[p] * sizes[q], false);
  }
  const auto isCovered = [&](size_t p, size_t q, size_t a, size_t b) {
    return covered[std::min(p, q)][std::max(p, q)][at(p, q, a, b)];
  };

  std::vector<std::vector<size_t>> rows;
  for (size_t p = 0; p < n; ++p) {
    for (size_t q = p + 1; q < n; ++q) {
      for (size_t pair = 0; pair < sizes[p] * sizes[q]; ++pair) {
        if (covered[p][q][pair]) continue;
        std::vector<size_t> row(n, SIZE_MAX);
        row[p] = pair / sizes[q];
        row[q] = pair % sizes[q];
        for (size_t r = 0; r < n; ++r) {
          if (row[r] != SIZE_MAX) continue;
          const size_t start = mix(seed + rows.size() * n + r) % sizes[r];
          size_t best = 0, bestGain = 0;
          for (size_t i = 0; i < sizes[r]; ++i) {
            const size_t value = (start + i) % sizes[r];
            size_t gain = 1;
            for (size_t s = 0; s < n; ++s) {
              if (s != r && row[s] != SIZE_MAX && !isCovered(r, s, value, row[s])) ++gain;
            }
            if (gain > bestGain) {
              best = value;
              bestGain = gain;
            }
          }
          row[r] = best;
        }
        for (size_t a = 0; a < n; ++a) {
          for (size_t b = a + 1; b < n; ++b) covered[a][b][at(a, b, row[a], row[b])] = true;
        }
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

}  // namespace ctran::testing
