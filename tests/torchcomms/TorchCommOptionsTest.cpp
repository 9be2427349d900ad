// Options: what they are when nobody says anything, what the environment makes of them, and that a
// communicator keeps those it was made with.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <comms/torchcomms/TorchComm.hpp>

#include "ctran/base/error.h"

namespace torch::comms {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Options, OfACommunicatorHaveDefaults) {
  const CommOptions options;
  EXPECT_TRUE(options.abort_process_on_timeout_or_error);
  EXPECT_EQ(options.timeout, seconds(600));
  EXPECT_FALSE(options.enable_reconfigure);
  EXPECT_FALSE(options.is_high_priority_stream);
  EXPECT_TRUE(options.hints.empty());
  EXPECT_FALSE(options.rank.has_value());
  EXPECT_TRUE(options == CommOptions());
}

TEST(Options, DifferInAnyOfTheirParts) {
  const auto differs = [](const std::function<void(CommOptions&)>& change) {
    CommOptions options;
    change(options);
    return !(options == CommOptions());
  };
  EXPECT_TRUE(differs([](CommOptions& o) { o.timeout = seconds(1); }));
  EXPECT_TRUE(differs([](CommOptions& o) { o.abort_process_on_timeout_or_error = false; }));
  EXPECT_TRUE(differs([](CommOptions& o) { o.hints["a"] = "b"; }));
  EXPECT_TRUE(differs([](CommOptions& o) { o.rank = 0; }));
  EXPECT_TRUE(differs([](CommOptions& o) { o.name = "name"; }));
}

TEST(Options, TakeTheirDefaultsFromTheEnvironment) {
  setenv("TORCHCOMM_ABORT_ON_ERROR", "false", 1);
  setenv("TORCHCOMM_TIMEOUT_SECONDS", "1.5", 1);
  const CommOptions options;
  EXPECT_FALSE(options.abort_process_on_timeout_or_error);
  EXPECT_EQ(options.timeout, milliseconds(1500));
  setenv("TORCHCOMM_TIMEOUT_SECONDS", "soon", 1);
  EXPECT_THROW(CommOptions(), ctran::Error);
  unsetenv("TORCHCOMM_TIMEOUT_SECONDS");
  unsetenv("TORCHCOMM_ABORT_ON_ERROR");
}

TEST(Options, OfAnOperationLeaveTheTimeoutToTheCommunicator) {
  EXPECT_EQ(AllReduceOptions().timeout, kNoTimeout);
  EXPECT_TRUE(AllReduceOptions().hints.empty());
  EXPECT_EQ(SendOptions().tag, 0);
}

TEST(Options, AreKeptByTheCommunicator) {
  CommOptions options;
  options.rank = 1;
  options.size = 3;
  options.timeout = seconds(7);
  options.hints = {{"a", "b"}};
  const auto comm = new_comm("fake", at::Device(at::kCPU), "kept", options);
  EXPECT_EQ(comm->getOptions().timeout, seconds(7));
  EXPECT_EQ(comm->getOptions().hints, options.hints);
  EXPECT_EQ(comm->getCommName(), "kept");
  EXPECT_EQ(comm->getRank(), 1);
}

}  // namespace
}  // namespace torch::comms
