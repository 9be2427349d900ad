// NVTX ranges: through what torch has for them, of which a test can have its own.

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <comms/torchcomms/TorchComm.hpp>
#include <cstdlib>
#include <stdexcept>

namespace torch::comms {
namespace {

struct Ranges : profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex*, profiler::impl::ProfilerVoidEventStub*, int64_t*) const override {}
  float elapsed(const profiler::impl::ProfilerVoidEventStub*,
                const profiler::impl::ProfilerVoidEventStub*) const override {
    return 0;
  }
  void mark(const char*) const override {}
  void rangePush(const char* name) const override { told.emplace_back(name); }
  void rangePop() const override { told.emplace_back("end"); }
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)>) const override {}
  void synchronize() const override {}

  mutable std::vector<std::string> told;
};

TEST(Nvtx, ACallIsARangeWithItsBytesAndAlgorithm) {
  static Ranges ranges;
  profiler::impl::registerCUDAMethods(&ranges);
  ::setenv("TORCHCOMMS_NVTX", "1", 1);
  CommOptions options;
  options.rank = 0;
  options.size = 1;
  const auto comm = new_comm("ctran", at::Device(at::kCPU), "ranged", options);
  at::Tensor tensor = at::ones({3});
  comm->all_reduce(tensor, ReduceOp::SUM, false);
  ASSERT_EQ(ranges.told.size(), 2U);
  EXPECT_TRUE(ranges.told[0].starts_with("ctran:all_reduce bytes=12 algorithm=")) << ranges.told[0];
  EXPECT_EQ(ranges.told[1], "end");

  ranges.told.clear();
  comm->registerPreHook(
      [](OpName, uint64_t, const PreHookArgs&) { throw std::runtime_error("no"); });
  EXPECT_THROW(comm->barrier(false), std::runtime_error);
  EXPECT_EQ(ranges.told.size(), 2U) << "a range ends, whatever the call does";
}

}  // namespace
}  // namespace torch::comms
