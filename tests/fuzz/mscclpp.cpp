// Any text as an execution plan of MSCCL++: it is refused, or lowered to a plan, which is
// well-formed and, where it is small, can be verified.
#include "ctran/base/error.h"
#include "ctran/plan/mscclpp/program.h"
#include "ctran/plan/verify.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ctran;
  try {
    const Json json = Json::parse(testing::textOf(data, size));
    const plan::mscclpp::Program program = plan::mscclpp::parse(json);
    testing::require(program.json == json, "nothing of a program is lost");
    const plan::Plan plan = plan::mscclpp::lower(program).plan;
    plan::check(plan);
    if (plan.ranks <= 8 && plan.chunks <= 64 && plan.scratch <= 64 && plan.stepCount() <= 200) {
      plan::verify(plan);
    }
  } catch (const Error& error) {
    testing::require(
        error.kind() == ErrorKind::InvalidArgument || error.kind() == ErrorKind::Unsupported,
        "a bad program is a bad argument");
  }
  return 0;
}
