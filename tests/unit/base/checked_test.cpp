#include <gtest/gtest.h>

#include "ctran/base/checked.h"
#include "ctran/base/data_type.h"
#include "ctran/base/error.h"
#include "ctran/base/reduce_op.h"

namespace ctran {
namespace {

TEST(Checked, SumsAndProductsThatWouldWrapAreTooLargeForAnyBound) {
  EXPECT_EQ((Checked(3) * 4 + 5).atMost(17, 0, "things"), 17u);
  EXPECT_FALSE((Checked(3) * 4 + 5).isAtMost(16));
  EXPECT_FALSE((Checked(UINT64_MAX) + 1).isAtMost(UINT64_MAX));
  EXPECT_FALSE((Checked(uint64_t{1} << 52) * 4096).isAtMost(UINT64_MAX));
  EXPECT_FALSE(((Checked(UINT64_MAX) + 1) * 0 + 1).isAtMost(UINT64_MAX)) << "once is for good";
  EXPECT_TRUE(Checked(UINT64_MAX).isAtMost(UINT64_MAX));
}

TEST(Checked, WhoSaysTooMuchIsNamed) {
  for (const Checked number : {Checked(18), Checked(UINT64_MAX) * 2}) {
    try {
      number.atMost(17, 3, "rows", "an operation");
      FAIL() << "it was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Mismatch);
      EXPECT_EQ(error.ranks(), std::vector<int>{3});
      EXPECT_NE(std::string(error.what()).find("rank 3 tells"), std::string::npos) << error.what();
      EXPECT_EQ(error.op(), "an operation");
    }
  }
}

TEST(Checked, ARangeIsInsideOnlyIfItsEndIs) {
  EXPECT_TRUE(isInside(0, 0, 0));
  EXPECT_TRUE(isInside(3, 7, 10));
  EXPECT_FALSE(isInside(4, 7, 10));
  EXPECT_FALSE(isInside(UINT64_MAX, 2, 10));
}

TEST(Checked, TextFromOutsideIsMadePrintable) {
  EXPECT_EQ(printable("line\nfür 日本 \U0001f600"), "line\nfür 日本 \U0001f600");
  EXPECT_EQ(printable(std::string("a\0b\x1b[2J\x7f", 8)), "a?b?[2J?");
  EXPECT_EQ(printable("\xff\xc3"), "??");
  EXPECT_EQ(printable("\xc0\x80"), "??") << "an overlong form";
  EXPECT_EQ(printable("\xed\xa0\x80"), "???") << "a surrogate";
  EXPECT_EQ(printable("\xc2\x9b"), "??") << "a control character";
}

TEST(Checked, TypesAndReductionsBeyondTheTablesHaveNames) {
  for (int i = 0; i < 256; ++i) {
    const auto type = static_cast<DataType>(i);
    const auto kind = static_cast<ReduceKind>(i);
    EXPECT_EQ(nameOf(type) == "unknown type", i >= kDataTypeCount);
    EXPECT_EQ(nameOf(kind) == "unknown reduction", i >= kReduceKindCount);
    EXPECT_GE(sizeOf(type), 1u);
  }
}

}  // namespace
}  // namespace ctran
