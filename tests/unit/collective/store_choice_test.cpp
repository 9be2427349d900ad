#include "ctran/collective/store_choice.h"

#include <gtest/gtest.h>

#include "ctran/base/clock.h"

namespace ctran::testing {
namespace {

void work(int64_t nanos) {
  const int64_t end = nowNanos() + nanos;
  while (nowNanos() < end) relax();
}

/// How many of `count` operations streamed, if one way costs ten times as much as the other.
int streamed(StoreChoice& choice, size_t bytes, int count, bool streamingIsSlow, double gain = 1) {
  int streamed = 0;
  for (int i = 0; i < count; ++i) {
    const bool streams = choice.begin(bytes, true, gain);
    work(streams == streamingIsSlow ? 20'000 : 2'000);
    choice.end();
    streamed += streams ? 1 : 0;
  }
  return streamed;
}

TEST(StoreChoice, NothingSmallStreams) {
  StoreChoice choice;
  EXPECT_EQ(streamed(choice, StoreChoice::kFewestBytes - 1, 50, false), 0);
}

TEST(StoreChoice, NothingIsTriedOnMemoryThatNobodyHasTouched) {
  StoreChoice choice;
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(choice.begin(1 << 20, false));
    choice.end();
  }
  EXPECT_GT(streamed(choice, 1 << 20, 50, true), 0);
}

TEST(StoreChoice, WhatIsNoTrialIsAsChosenBefore) {
  StoreChoice choice;
  EXPECT_GT(streamed(choice, 4096, 50, false), 30);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(choice.begin(4096, false));
    EXPECT_FALSE(choice.isTrial());
    choice.end();
  }
}

TEST(StoreChoice, KeepsWhatIsFaster) {
  StoreChoice slow, fast;
  const int tried = streamed(slow, 4096, 200, true);
  EXPECT_GT(tried, 0);
  EXPECT_LT(tried, 20);
  EXPECT_GT(streamed(fast, 4096, 200, false), 170);
}

TEST(StoreChoice, WhatGainsLessThanAskedForIsNotKept) {
  StoreChoice choice;
  EXPECT_LT(streamed(choice, 4096, 200, false, 100), 20);
}

TEST(StoreChoice, SizesAreChosenForSeparately) {
  StoreChoice choice;
  EXPECT_GT(streamed(choice, 4096, 100, false), 80);
  EXPECT_LT(streamed(choice, 1 << 20, 100, true), 20);
  EXPECT_GT(streamed(choice, 4096, 100, false), 90);
}

}  // namespace
}  // namespace ctran::testing
