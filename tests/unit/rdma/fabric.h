#pragma once

#include <gtest/gtest.h>

namespace ctran::testing {

/// Tests of RDMA transports between two ends of one process: on the stand-in for libibverbs in
/// ctran_tests, on soft-RoCE in ctran_rdma_tests, each of which defines SetUp and TearDown.
class RdmaFabric : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
};

}  // namespace ctran::testing
