// The tests of tests/unit/rdma on the device of this machine.
#include "tests/unit/rdma/fabric.h"

namespace ctran::testing {

void RdmaFabric::SetUp() {}
void RdmaFabric::TearDown() {}

}  // namespace ctran::testing
