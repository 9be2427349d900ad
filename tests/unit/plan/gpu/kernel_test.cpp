// Plans as CUDA C++: readable, and compiled for GPUs. What it does, tests/kernels/plan_test.cpp
// tells.
#include "ctran/plan/gpu/kernel.h"

#include <gtest/gtest.h>

#include "ctran/gpu/nvrtc.h"
#include "ctran/plan/builder.h"
#include "ctran/plan/library.h"
#include "ctran/plan/staging.h"
#include "tests/kernels/write_plans/plans.h"
#include "tests/unit/support/ranks.h"

namespace ctran::plan {
namespace {

using ctran::testing::errorOf;

Kernel kernelFor(const Plan& plan, int rank) {
  return kernelOf(plan, verify(plan).properties, rank);
}

TEST(PlanSource, ReadsLikeThePlan) {
  const std::string source = kernelFor(makePlan("all_reduce.two_shot", {2}), 1).source;
  for (const char* line :
       {"// Rank 1 of plan all_reduce.two_shot: all_reduce over 2 ranks.",
        "inline constexpr PlanShape kShape = {/*lanes*/ 1, /*chunks*/ 2, /*scratch*/ 2, /*depth*/ "
        "2, /*packets*/ false};",
        "  // 0: wait c3 from 0; scratch[0]@0 = input[0]; signal c2 to 0\n",
        "  r.template move<false>(0, {r.scratch(0, 0)}, {r.input(0)});\n",
        "  r.template move<true>(1, {r.output(1)}, {r.scratch(1, 0), r.input(1)});\n"}) {
    EXPECT_NE(source.find(line), std::string::npos) << line << "\n" << source;
  }
}

TEST(PlanSource, RefusesWhatGpusDoNotMap) {
  Builder b("pull", CollectiveKind::AllGather, 2, 1);
  for (int r = 0; r < 2; ++r) {
    for (int peer = 0; peer < 2; ++peer) b.copy({r, 0}, b.output(r, peer), b.input(peer, 0));
  }
  const Plan plan = b.finish();
  const Error error = errorOf([&] { kernelFor(plan, 1); });
  EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
  EXPECT_NE(std::string(error.what()).find("rank 1 reaches the input of rank 0"),
            std::string::npos);
  EXPECT_EQ(errorOf([] { kernelFor(makePlan("all_reduce.ring", {9}), 0); }).kind(),
            ErrorKind::Unsupported);
  EXPECT_EQ(errorOf([] { kernelFor(makePlan("all_reduce.ring", {2}), 2); }).kind(),
            ErrorKind::InvalidArgument);
}

TEST(PlanSource, EveryPlanOfTheLibraryIsACubin) {
  if (ctran::testing::kSanitizer) {
    GTEST_SKIP() << "the compiler is not ours";
  }
  try {
    gpu::nvrtcVersion();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  // One text for all, so that what they share is compiled once.
  std::string text;
  std::vector<std::string> entries;
  for (const BuiltIn& builtIn : library()) {
    const Plan plan = makePlan(builtIn.name, {4, 0, 1, 1, 2});
    const Kernel kernel =
        kernelOf(plan, verify(plan).properties, 1, "plan" + std::to_string(entries.size()));
    text += kernel.source;
    entries.push_back(kernel.entry);
  }
  for (const Plan& plan : {testing::inPackets(makePlan("all_reduce.two_shot", {4, 0, 1, 1, 2})),
                           testing::allReduceInLanes()}) {
    const Kernel kernel =
        kernelOf(plan, verify(plan).properties, 1, "plan" + std::to_string(entries.size()));
    text += kernel.source;
    entries.push_back(kernel.entry);
  }
  const Plan direct = testing::allReduceByReach(4), stagedPlan = staged(direct);
  text += kernelOf(stagedPlan, verify(stagedPlan).properties, 1, "reach", &direct).source;
  entries.emplace_back("ctranPlan_reach");
  const std::string cubin =
      gpu::compileUncached({"library", text, "sm_90", {"CTRAN_ELEMENT=f32", "CTRAN_OP=Sum"}});
  for (const std::string& entry : entries) {
    EXPECT_NE(cubin.find(entry), std::string::npos) << entry;
  }
  const Kernel kernel = kernelFor(makePlan("all_reduce.two_shot", {8, 0, 2}), 5);
  for (const auto& [element, op] : std::vector<std::pair<std::string, std::string>>{
           {"BFloat16", "Avg"}, {"Float16", "Min"}, {"u64", "Max"}}) {
    EXPECT_FALSE(
        gpu::compileUncached(
            {"two_shot", kernel.source, "sm_90", {"CTRAN_ELEMENT=" + element, "CTRAN_OP=" + op}})
            .empty());
  }
}

}  // namespace
}  // namespace ctran::plan
