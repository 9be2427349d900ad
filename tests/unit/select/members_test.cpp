// Which member of backend ncclx serves a call.
#include "ctran/select/members.h"

#include <gtest/gtest.h>

namespace ctran {
namespace {

using Kind = CollectiveKind;

TuningTable::Entry entry(Kind kind, size_t bytes, double engine, double vendor) {
  return {kind, bytes, {{Members::kEngine, engine}, {Members::kVendor, vendor}}};
}

Members crossing() {
  TuningTable table;
  // Not in their order. They cross where both take 20: halfway, in logarithms.
  table.entries = {entry(Kind::AllReduce, 1 << 20, 40, 20),
                   entry(Kind::AllReduce, 1 << 10, 10, 20),
                   entry(Kind::Broadcast, 4096, 5, 1),
                   {Kind::AllGather, 64, {{"ctran", 1}}}};
  return {table, "here"};
}

TEST(Members, TakesTheFasterOne) {
  const Members members = crossing();
  EXPECT_FALSE(members.takesVendor(Kind::AllReduce, 1 << 10));
  EXPECT_TRUE(members.takesVendor(Kind::AllReduce, 1 << 20));
  EXPECT_FALSE(members.takesVendor(Kind::AllReduce, 1 << 14));
  EXPECT_TRUE(members.takesVendor(Kind::AllReduce, 1 << 16));
  // Beyond what was measured, as at the nearest size.
  EXPECT_FALSE(members.takesVendor(Kind::AllReduce, 0));
  EXPECT_TRUE(members.takesVendor(Kind::AllReduce, size_t{1} << 40));
  EXPECT_TRUE(members.takesVendor(Kind::Broadcast, 1));
}

TEST(Members, IsTheEngineWhereNobodyMeasuredBoth) {
  EXPECT_FALSE(crossing().takesVendor(Kind::AllGather, 64));
  EXPECT_FALSE(crossing().takesVendor(Kind::Barrier, 0));
  EXPECT_FALSE(Members().takesVendor(Kind::AllReduce, 1 << 30));
  EXPECT_FALSE(crossing().micros(Kind::AllGather, 64, Members::kEngine));
}

TEST(Members, InterpolatesBetweenWhatWasMeasured) {
  const Members members = crossing();
  EXPECT_NEAR(*members.micros(Kind::AllReduce, 1 << 15, Members::kEngine), 20, 1e-9);
  EXPECT_NEAR(*members.micros(Kind::AllReduce, 1 << 15, Members::kVendor), 20, 1e-9);
  EXPECT_NEAR(*members.micros(Kind::AllReduce, 1, Members::kEngine), 10, 1e-9);
  EXPECT_NEAR(*members.micros(Kind::AllReduce, 1 << 21, Members::kEngine), 80, 1e-9);
}

/// The table that is built in: at no size that was measured is the choice slower than the vendor's
/// library by more than 3 %.
TEST(Members, IsNeverMuchSlowerThanTheVendorOnH200) {
  for (const int ranks : {2, 3, 4, 8}) {
    const TuningTable table = measuredOnH200(ranks);
    EXPECT_EQ(table.ranks, ranks == 2 ? 2 : 4);
    ASSERT_GT(table.entries.size(), 20u);
    const Members members(table, "H200");
    for (const auto& one : table.entries) {
      const bool vendor = members.takesVendor(one.kind, one.bytes);
      const double engineTime = *members.micros(one.kind, one.bytes, Members::kEngine);
      const double vendorTime = *members.micros(one.kind, one.bytes, Members::kVendor);
      const double taken = vendor ? vendorTime : engineTime;
      EXPECT_LE(taken, 1.03 * vendorTime) << nameOf(one.kind) << " of " << one.bytes << " bytes";
      EXPECT_LE(taken, 1.03 * engineTime) << nameOf(one.kind) << " of " << one.bytes << " bytes";
    }
    EXPECT_FALSE(members.takesVendor(Kind::AllReduce, 8192));
  }
  const Members four(measuredOnH200(4), "H200");
  EXPECT_TRUE(four.takesVendor(Kind::AllReduce, 1 << 30));
}

}  // namespace
}  // namespace ctran
