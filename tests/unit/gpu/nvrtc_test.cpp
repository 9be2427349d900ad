#include "ctran/gpu/nvrtc.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "ctran/base/error.h"
#include "ctran/collective/gpu/kernels.h"
#include "tests/unit/support/ranks.h"

namespace ctran::gpu {
namespace {

using testing::kSanitizer;

/// Skips a test where there is no compiler; CI has one.
#define REQUIRE_NVRTC()                              \
  try {                                              \
    nvrtcVersion();                                  \
  } catch (const Error& error) {                     \
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported); \
    GTEST_SKIP() << error.what();                    \
  }

enum Family { kPipeline, kLines, kPackets, kFamilies, kAll = kFamilies };

/// The kernels of one family, or of all.
void expectReduces(const std::string& architecture, DataType type, ReduceKind op, int ranks,
                   int family = kAll) {
  const auto isAsked = [family](Family f) { return family == f || family == kAll; };
  if (isAsked(kPipeline)) {
    const std::string pipeline = compileUncached(pipelineRequest(architecture, ranks, type, op));
    EXPECT_NE(pipeline.find("ctranReducePipeline"), std::string::npos);
  }
  if (isAsked(kLines)) {
    const std::string lines = compileUncached(linesRequest(architecture, ranks, type, op));
    EXPECT_NE(lines.find("ctranReduceLines"), std::string::npos);
  }
  const bool fits = deviceReduction(type, op).fitsPackets();
  EXPECT_EQ(fits, !(type == DataType::Complex128 && op == ReduceKind::Product));
  if (!isAsked(kPackets) || !fits) return;
  const std::string packets = compileUncached(reducingRequest(architecture, ranks, type, op));
  for (const char* name :
       {"ctranAllReduceOneShot", "ctranAllReduceTwoShot", "ctranReducePackets"}) {
    EXPECT_NE(packets.find(name), std::string::npos) << name;
  }
}

TEST(NvrtcTest, MovingKernelsCompileForEveryWorld) {
  if (kSanitizer) GTEST_SKIP() << "the compiler is not ours";
  REQUIRE_NVRTC();
  const std::string signals = compileUncached(signalsRequest("sm_90"));
  for (const char* name : {"ctranSignal", "ctranAwaitSignal"}) {
    EXPECT_NE(signals.find(name), std::string::npos) << name;
  }
  for (const int ranks : {1, 2, 4, 8}) {
    const std::string cubin = compileUncached(movingRequest("sm_90", ranks));
    for (const char* name :
         {"ctranExchange", "ctranExchangePackets", "ctranWaitForCopy", "ctranSignalCopy"}) {
      EXPECT_NE(cubin.find(name), std::string::npos) << name;
    }
    const std::string rows = compileUncached(rowsRequest("sm_90", ranks));
    for (const char* name : {"ctranCountRows", "ctranMoveRows"}) {
      EXPECT_NE(rows.find(name), std::string::npos) << name;
    }
    const std::string quantized = compileUncached(quantizedRequest("sm_90", ranks));
    EXPECT_NE(quantized.find("ctranReduceQuantized"), std::string::npos);
  }
}

TEST(NvrtcTest, ReductionsCompileForEveryElementOperationAndWorld) {
  if (kSanitizer) GTEST_SKIP() << "the compiler is not ours";
  REQUIRE_NVRTC();
  // Each type and each operation, in some world: all kernels where everything is tested, else of
  // one family after the other; what families have in common is all that depends on either.
  const auto familyOf = [](int i) { return testing::testsEverything() ? kAll : i % kFamilies; };
  int ranks = 1;
  for (int type = 0; type <= static_cast<int>(DataType::Complex128); ++type) {
    expectReduces("sm_90", static_cast<DataType>(type), ReduceKind::Sum, 1 + ranks++ % 4,
                  familyOf(type));
  }
  for (int op = 0; op < kReduceKindCount; ++op) {
    const auto kind = static_cast<ReduceKind>(op);
    const bool bits = !isSupported(kind, DataType::BFloat16);
    expectReduces("sm_90", bits ? DataType::UInt32 : DataType::BFloat16, kind, 2, familyOf(op));
  }
  expectReduces("sm_90", DataType::Int8, ReduceKind::Sum, 4);
  expectReduces("sm_90", DataType::Complex64, ReduceKind::Product, 3);
  expectReduces("sm_90", DataType::Complex128, ReduceKind::Product, 2);
  expectReduces("sm_90", DataType::Float32, ReduceKind::Sum, 8);
  expectReduces("sm_80", DataType::BFloat16, ReduceKind::Sum, 4);
  expectReduces("sm_100", DataType::BFloat16, ReduceKind::Sum, 4);
}

TEST(NvrtcTest, AMistakeInTheSourceComesWithTheCompilersLog) {
  REQUIRE_NVRTC();
  try {
    compileUncached({"broken", "__global__ void f() { undeclared = 1; }\n", "sm_90", {}});
    FAIL() << "compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
    EXPECT_NE(std::string(error.what()).find("undeclared"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("broken"), std::string::npos) << error.what();
  }
}

TEST(NvrtcTest, AnOverrideIsTheOnlyPlaceLookedAt) {
  setenv("CTRAN_NVRTC_LIBRARY", "/nowhere/libnvrtc.so", 1);
  EXPECT_EQ(nvrtcCandidates(), std::vector<std::string>{"/nowhere/libnvrtc.so"});
  unsetenv("CTRAN_NVRTC_LIBRARY");
  EXPECT_GT(nvrtcCandidates().size(), 2u);
}

TEST(NvrtcTest, LooksInCudaHome) {
  setenv("CUDA_HOME", "/some/cuda", 1);
  const std::vector<std::string> candidates = nvrtcCandidates();
  unsetenv("CUDA_HOME");
  const auto place = [&](const char* path) {
    return std::find(candidates.begin(), candidates.end(), path) - candidates.begin();
  };
  EXPECT_LT(place("/some/cuda/lib64/libnvrtc.so.13"), place("/some/cuda/lib/libnvrtc.so.12"));
  EXPECT_LT(place("/some/cuda/lib/libnvrtc.so.12"), place("/usr/local/cuda/lib64/libnvrtc.so.13"));
}

}  // namespace
}  // namespace ctran::gpu
