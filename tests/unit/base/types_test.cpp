#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

#include "ctran/base/clock.h"
#include "ctran/base/data_type.h"
#include "ctran/base/error.h"
#include "ctran/base/reduce_op.h"

namespace ctran {
namespace {

TEST(DataTypes, HaveDistinctNamesAndTheSizeTheirNameSays) {
  std::set<std::string_view> names;
  for (int i = 0; i < kDataTypeCount; ++i) names.insert(nameOf(static_cast<DataType>(i)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kDataTypeCount));
  const std::pair<DataType, const char*> expected[] = {
      {DataType::Bool, "bool"},
      {DataType::UInt64, "uint64"},
      {DataType::Float8E4M3, "float8_e4m3fn"},
      {DataType::BFloat16, "bfloat16"},
      {DataType::Complex128, "complex128"},
  };
  for (const auto& [type, name] : expected) EXPECT_EQ(nameOf(type), name);
  EXPECT_EQ(sizeOf(DataType::Bool), 1u);
  EXPECT_EQ(sizeOf(DataType::Float8E5M2), 1u);
  EXPECT_EQ(sizeOf(DataType::BFloat16), 2u);
  EXPECT_EQ(sizeOf(DataType::UInt64), 8u);
  EXPECT_EQ(sizeOf(DataType::Complex128), 16u);
}

TEST(DataTypes, OpaqueTypesAreFoundBySize) {
  for (size_t bytes = 0; bytes <= 32; ++bytes) {
    const std::optional<DataType> type = opaqueOfSize(bytes);
    const bool exists = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16;
    ASSERT_EQ(type.has_value(), exists) << bytes;
    if (exists) {
      EXPECT_EQ(sizeOf(*type), bytes);
    }
  }
}

TEST(ReduceOps, AreSupportedExactlyWhenThereIsNoReasonAgainst) {
  for (int k = 0; k < kReduceKindCount; ++k) {
    for (int t = 0; t < kDataTypeCount; ++t) {
      const auto kind = static_cast<ReduceKind>(k);
      const auto type = static_cast<DataType>(t);
      const std::string why = whyUnsupported(kind, type);
      EXPECT_EQ(isSupported(kind, type), why.empty());
      if (why.empty()) continue;
      EXPECT_NE(why.find(nameOf(kind)), std::string::npos) << why;
      EXPECT_NE(why.find(nameOf(type)), std::string::npos) << why;
    }
  }
}

TEST(Errors, OfTheSystemSayWhatToTry) {
  const auto hasHint = [](int errnum, const std::string& hint) {
    return std::string(systemError("a call", errnum).what()).find(hint) != std::string::npos;
  };
  EXPECT_TRUE(hasHint(EPERM, "seccomp"));
  EXPECT_TRUE(hasHint(ENOSYS, "seccomp"));
  EXPECT_TRUE(hasHint(EAGAIN, "ulimit -u"));
}

TEST(Errors, OfTheSystemSayWhatFailedAndWhy) {
  const Error error = systemError("connecting to 10.0.0.1:80", ECONNREFUSED);
  EXPECT_EQ(error.kind(), ErrorKind::System);
  EXPECT_STREQ(error.what(), "connecting to 10.0.0.1:80: Connection refused");
}

TEST(Errors, CarryTheirHintInTheMessage) {
  const Error error(ErrorKind::Timeout, "waited for rank 3", {3}, "barrier", "is rank 3 alive?");
  EXPECT_STREQ(error.what(), "waited for rank 3\n  hint: is rank 3 alive?");
  EXPECT_EQ(error.ranks(), std::vector<int>{3});
  EXPECT_EQ(error.op(), "barrier");
}

TEST(Clock, GoesForward) {
  const int64_t first = nowNanos();
  int64_t last = first;
  while (last == first) {
    relax();
    const int64_t now = nowNanos();
    ASSERT_GE(now, last);
    last = now;
  }
}

}  // namespace
}  // namespace ctran
