// Compares our declarations of the verbs' types with those of <infiniband/verbs.h>, on machines
// that have it (Debian and Ubuntu: libibverbs-dev).

#include <gtest/gtest.h>

#include "ctran/verbs/abi.h"
#include "tests/unit/verbs/abi_rows.h"

namespace ibverbx {

std::vector<AbiRow> rowsOfOurs() {
#define TYPE CTRAN_ABI_TYPE
#define FIELD CTRAN_ABI_FIELD
#define VALUE CTRAN_ABI_VALUE
  return {
#include "tests/unit/verbs/abi_fields.inc"
  };
}

namespace {

TEST(VerbsAbiTest, IsThatOfTheHeader) {
  const std::vector<AbiRow> header = rowsOfHeader();
  if (header.empty()) GTEST_SKIP() << "no <infiniband/verbs.h> (Debian: libibverbs-dev)";
  const std::vector<AbiRow> ours = rowsOfOurs();
  ASSERT_EQ(ours.size(), header.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(ours[i].what, header[i].what);
    // rdma-core has appended to it since; ibv_query_port fills what was there before.
    if (ours[i].what == "sizeof ibv_port_attr") {
      EXPECT_LE(ours[i].value, header[i].value);
    } else {
      EXPECT_EQ(ours[i].value, header[i].value) << ours[i].what;
    }
  }
}

}  // namespace
}  // namespace ibverbx
