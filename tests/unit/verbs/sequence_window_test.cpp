#include "ctran/verbs/sequence_window.h"

#include <gtest/gtest.h>

namespace ibverbx {
namespace {

TEST(VerbsSequenceWindowTest, PutsInOrderAroundTheEndOfTheNumbers) {
  constexpr uint64_t kFirst = (1ull << 24) - 10;
  SequenceWindow window(8, kFirst);
  for (uint64_t block = 0; block < 5; ++block) {
    for (const uint64_t i : {2, 0, 3, 1}) {
      const uint64_t number = kFirst + 4 * block + i;
      const auto bytes = static_cast<uint32_t>(i);
      ASSERT_TRUE(window.accept(FragmentMark::pack(number, i == 3), bytes, 0));
    }
    for (uint32_t i = 0; i < 4; ++i) {
      const auto* fragment = window.front();
      ASSERT_NE(fragment, nullptr);
      ASSERT_EQ(fragment->bytes, i);
      ASSERT_EQ(fragment->notify, i == 3);
      window.pop();
    }
    ASSERT_EQ(window.front(), nullptr);
  }
}

TEST(VerbsSequenceWindowTest, RefusesWhatCannotCome) {
  SequenceWindow window(8);
  EXPECT_TRUE(window.accept(FragmentMark::pack(7, false), 1, 0));
  EXPECT_FALSE(window.accept(FragmentMark::pack(7, false), 1, 0)) << "twice";
  EXPECT_FALSE(window.accept(FragmentMark::pack(8, false), 1, 0)) << "beyond";
  EXPECT_FALSE(window.accept(FragmentMark::kSequenceMask, 1, 0)) << "before the first";
  EXPECT_FALSE(window.accept(1u << 27, 1, 0)) << "unknown bits";
}

}  // namespace
}  // namespace ibverbx
