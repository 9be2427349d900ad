#include "ctran/base/per_rank.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace ctran::testing {
namespace {

TEST(PerRank, HasWhatWasPutThereAndNothingElse) {
  for (const int size : {1, 2, 16, 17, 256, 257, 131'072, 1 << 20}) {
    PerRank<int> all(size);
    std::vector<int> ranks{0, size / 3, size / 2, size - 1};
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    for (auto r = ranks.rbegin(); r != ranks.rend(); ++r) all.get(*r) = *r + 7;
    std::vector<int> seen;
    all.forEach([&](int rank, int& value) {
      seen.push_back(rank);
      EXPECT_EQ(value, rank + 7);
    });
    EXPECT_EQ(seen, ranks) << size;
    for (int rank = 0; rank < size; rank += std::max(1, size / 1000)) {
      const bool isThere = std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
      ASSERT_EQ(all.find(rank) != nullptr, isThere) << rank << " of " << size;
    }
    all.clear();
    EXPECT_EQ(all.find(0), nullptr);
  }
}

TEST(PerRank, MakesOneOfEachForAllThreads) {
  constexpr int kSize = 3000;
  PerRank<std::atomic<int>> all(kSize);
  std::atomic<int> made{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kSize; ++i) {
        const int rank = t % 2 == 0 ? i : kSize - 1 - i;
        all.get(rank,
                [&] {
                  ++made;
                  return std::make_unique<std::atomic<int>>(0);
                })
            .fetch_add(1);
        EXPECT_NE(all.find(rank), nullptr);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, kSize);
  all.forEach([](int rank, const std::atomic<int>& value) { EXPECT_EQ(value, 4) << rank; });
}

}  // namespace
}  // namespace ctran::testing
