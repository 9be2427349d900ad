#include "ctran/gpu/nvrtc.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "ctran/base/error.h"

namespace ctran::gpu {
namespace {

/// Skips a test where there is no compiler; CI has one.
#define REQUIRE_NVRTC()                              \
  try {                                              \
    nvrtcVersion();                                  \
  } catch (const Error& error) {                     \
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported); \
    GTEST_SKIP() << error.what();                    \
  }

void expectCompiles(const std::string& architecture, const std::string& element,
                    const std::string& op, int ranks) {
  const std::string cubin = compileUncached(
      {"all_reduce",
       "#include \"ctran/collective/all_reduce/two_shot.cuh\"\n",
       architecture,
       {"CTRAN_ELEMENT=" + element, "CTRAN_OP=" + op, "CTRAN_RANKS=" + std::to_string(ranks)}});
  EXPECT_NE(cubin.find("ctranAllReduceOneShot"), std::string::npos);
  EXPECT_NE(cubin.find("ctranAllReduceTwoShot"), std::string::npos);
}

TEST(NvrtcTest, AllReduceCompilesForEveryElementOperationAndWorld) {
  REQUIRE_NVRTC();
  for (const char* element : {"BFloat16", "Float16", "f32", "f64", "i8", "u8", "i32", "u64"}) {
    expectCompiles("sm_90", element, "Sum", 4);
  }
  for (const char* op : {"Product", "Min", "Max", "Avg", "PremulSum"}) {
    expectCompiles("sm_90", "BFloat16", op, 2);
  }
  for (const char* op : {"BitAnd", "BitOr", "BitXor"}) expectCompiles("sm_90", "u32", op, 2);
  expectCompiles("sm_90", "f32", "Sum", 8);
  expectCompiles("sm_80", "BFloat16", "Sum", 4);
  expectCompiles("sm_100", "BFloat16", "Sum", 4);
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

}  // namespace
}  // namespace ctran::gpu
