#include "ctran/transport/board.h"

#include <gtest/gtest.h>

namespace ctran::testing {
namespace {

std::shared_ptr<SharedMapping> zeros(size_t bytes) {
  return SharedMapping::map(createSharedMemory("test", bytes), bytes);
}

TEST(Board, KeepsNothingOfRanksThatItHasNotHeardOf) {
  constexpr int kSize = 100'000;
  Board board(zeros(Board::bytesFor(1)), 7, kSize, false);
  EXPECT_EQ(board.known(), std::vector<int>{7});
  EXPECT_EQ(board.find(99'999), nullptr);
  board.control(99'999).begun.store(5);
  board.control(7).begun.store(6);
  ASSERT_NE(board.find(99'999), nullptr);
  EXPECT_EQ(board.find(99'999)->begun.load(), 5u);
  EXPECT_EQ(board.find(99'998), nullptr);
  EXPECT_EQ(board.known(), (std::vector<int>{7, 99'999}));
}

TEST(Board, RanksOfAHostWriteTheirPartsThemselves) {
  const auto memory = zeros(Board::bytesFor(3));
  const std::vector<int> sharers{2, 70, 71};
  Board one(memory, 0, 2, 1000, sharers), other(memory, 0, 71, 1000, sharers);
  one.control(2).begun.store(3);
  one.control(500).begun.store(4);
  EXPECT_EQ(other.control(2).begun.load(), 3u);
  EXPECT_EQ(other.find(500), nullptr) << "what another has heard";
  EXPECT_TRUE(one.isShared(70));
  EXPECT_FALSE(one.isShared(500));
  EXPECT_EQ(one.known(), (std::vector<int>{2, 70, 71, 500}));
}

}  // namespace
}  // namespace ctran::testing
