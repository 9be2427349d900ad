// Any text as a plan: it is refused, or the plan can be written and read again, and, where it is
// small, verified and simulated.
#include "ctran/plan/plan.h"

#include "ctran/base/error.h"
#include "ctran/plan/simulate.h"
#include "ctran/plan/verify.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ctran;
  try {
    const plan::Plan plan = plan::fromJson(Json::parse(testing::textOf(data, size)));
    testing::require(plan::fromJson(plan::toJson(plan)) == plan, "a plan reads as it was written");
    if (plan.ranks > 8 || plan.chunks > 64 || plan.scratch > 64 || plan.depth > 4) return 0;
    plan::toText(plan);
    if (plan::verify(plan).ok()) {
      plan::simulate(plan, {}, 1000);
    }
  } catch (const Error& error) {
    testing::require(error.kind() == ErrorKind::InvalidArgument, "a bad plan is a bad argument");
  }
  return 0;
}
