#include "tests/unit/rdma/fabric.h"

#include "tests/unit/verbs/verbs_fixture.h"

namespace ctran::testing {

void RdmaFabric::SetUp() {
  const ibverbx::StandInVerbs* standIn = ibverbx::StandInVerbs::get();
  ASSERT_NE(standIn, nullptr);
  standIn->standInVerbsReset(0);
}

void RdmaFabric::TearDown() {
  EXPECT_EQ(ibverbx::StandInVerbs::get()->standInVerbsObjects(), 0) << "verbs' objects are left";
}

}  // namespace ctran::testing
