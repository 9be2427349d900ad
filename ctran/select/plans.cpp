#include "ctran/select/plans.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/plan/library.h"

namespace ctran {
namespace {

struct PlanRegistry {
  std::mutex mutex;  // guards what follows
  uint64_t last = 0;
  std::shared_ptr<const RegisteredPlans> plans = std::make_shared<RegisteredPlans>();
};

PlanRegistry& planRegistry() {
  static PlanRegistry* const only = new PlanRegistry;  // threads may outlive static destructors
  return *only;
}

uint64_t addPlan(std::shared_ptr<const PlanAlgorithm> algorithm, const PlanUse& use) {
  if (use.minBytes > use.maxBytes) {
    throw Error(ErrorKind::InvalidArgument, "a plan cannot serve from " +
                                                std::to_string(use.minBytes) + " up to " +
                                                std::to_string(use.maxBytes) + " bytes");
  }
  const std::string name = "plan:" + algorithm->plan().name;
  const std::lock_guard lock(planRegistry().mutex);
  if (algorithm->function() != nullptr) {
    functionsWereRegistered.store(true, std::memory_order_relaxed);
  }
  RegisteredPlans plans = *planRegistry().plans;
  plans.insert(plans.begin(), {++planRegistry().last, name, use, std::move(algorithm)});
  planRegistry().plans = std::make_shared<const RegisteredPlans>(std::move(plans));
  planVersionWord.fetch_add(1, std::memory_order_release);
  return planRegistry().last;
}

}  // namespace

uint64_t registerPlan(const plan::Plan& plan, const PlanUse& use) {
  if (plan.open) {
    throw Error(ErrorKind::InvalidArgument,
                "plan '" + plan.name + "' promises no result, so it serves no calls", {}, {},
                "execute its program with mscclpp");
  }
  return addPlan(std::make_shared<const PlanAlgorithm>(plan), use);
}

uint64_t registerStaged(const plan::Plan& plan, const PlanUse& use) {
  return addPlan(PlanAlgorithm::staged(plan), use);
}

uint64_t registerUnproved(const plan::Plan& plan, const PlanUse& use) {
  return addPlan(PlanAlgorithm::unproved(plan), use);
}

uint64_t registerFunction(UserFunction function, const PlanUse& use) {
  return addPlan(std::make_shared<const PlanAlgorithm>(std::move(function)), use);
}

bool removePlan(uint64_t number) {
  std::shared_ptr<const RegisteredPlans> before;  // goes without the lock: it is the program's
  const std::lock_guard lock(planRegistry().mutex);
  RegisteredPlans plans = *planRegistry().plans;
  if (std::erase_if(plans, [&](const RegisteredPlan& r) { return r.number == number; }) == 0) {
    return false;
  }
  before = std::exchange(planRegistry().plans,
                         std::make_shared<const RegisteredPlans>(std::move(plans)));
  planVersionWord.fetch_add(1, std::memory_order_release);
  return true;
}

const RegisteredPlans& registeredPlans() {
  struct Seen {
    uint64_t version = 0;
    std::shared_ptr<const RegisteredPlans> plans = std::make_shared<RegisteredPlans>();
  };
  static thread_local Seen seen;
  if (seen.version != planVersion()) {
    Seen now;
    {
      const std::lock_guard lock(planRegistry().mutex);
      now = {planVersion(), planRegistry().plans};
    }
    std::swap(seen, now);  // what was seen goes without the lock: it is the program's
  }
  return *seen.plans;
}

std::shared_ptr<const PlanAlgorithm> libraryPlan(CollectiveKind kind, std::string_view name,
                                                 int size) {
  if (name == "scatter_all_gather") name = "scatter_gather";
  const std::string full = std::string(nameOf(kind)) + "." + std::string(name);
  plan::Recipe recipe;
  recipe.ranks = size;
  for (const plan::BuiltIn& plan : plan::library()) {
    if (plan.name != full || plan.kind != kind || !plan.whyNot(recipe).empty()) continue;
    try {
      return std::make_shared<const PlanAlgorithm>(plan.make(recipe));
    } catch (const Error&) {
      return nullptr;  // it needs more than shared memory has for so many ranks
    }
  }
  return nullptr;
}

}  // namespace ctran
