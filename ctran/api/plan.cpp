#include "ctran/plan.h"

#include "ctran/plan/mscclpp/prove.h"
#include "ctran/plan/plan.h"
#include "ctran/select/plans.h"

namespace ctran::api {
namespace {

ctran::PlanUse engineUse(const PlanUse& use) {
  return {use.communicator, use.minBytes, use.maxBytes, use.preferred};
}

}  // namespace

uint64_t registerPlan(const std::string& json, const PlanUse& use) {
  return ctran::registerPlan(plan::fromJson(Json::parse(json, "the plan")), engineUse(use));
}

uint64_t registerProgram(const std::string& json, const PlanUse& use) {
  const auto program = plan::mscclpp::parse(Json::parse(json, "the program"));
  return ctran::registerStaged(plan::mscclpp::prove(program).lowered.plan, engineUse(use));
}

std::optional<OpenBuffers> openBuffers(const std::string& json) {
  const auto program = plan::mscclpp::parse(Json::parse(json, "the program"));
  const auto open = plan::mscclpp::lower(program).plan.open;
  if (!open) return std::nullopt;
  return OpenBuffers{open->inputs, open->outputs};
}

bool removePlan(uint64_t number) { return ctran::removePlan(number); }

}  // namespace ctran::api
