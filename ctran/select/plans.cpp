#include "ctran/select/plans.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/plan/library.h"

namespace ctran {
namespace {

struct Registered {
  uint64_t number;
  PlanUse use;
  std::shared_ptr<const PlanAlgorithm> algorithm;
};

struct Registry {
  std::atomic<size_t> count{0};
  std::mutex mutex;  // guards what follows
  uint64_t last = 0;
  std::vector<Registered> plans;
};

Registry& registry() {
  static Registry* const registry = new Registry;  // threads may outlive static destructors
  return *registry;
}

}  // namespace

uint64_t registerPlan(const plan::Plan& plan, const PlanUse& use) {
  if (use.minBytes > use.maxBytes) {
    throw Error(ErrorKind::InvalidArgument, "a plan cannot serve from " +
                                                std::to_string(use.minBytes) + " up to " +
                                                std::to_string(use.maxBytes) + " bytes");
  }
  auto algorithm = std::make_shared<const PlanAlgorithm>(plan);
  std::lock_guard lock(registry().mutex);
  registry().plans.push_back({++registry().last, use, std::move(algorithm)});
  registry().count.store(registry().plans.size(), std::memory_order_release);
  return registry().last;
}

bool removePlan(uint64_t number) {
  std::lock_guard lock(registry().mutex);
  const size_t erased =
      std::erase_if(registry().plans, [&](const Registered& r) { return r.number == number; });
  registry().count.store(registry().plans.size(), std::memory_order_release);
  return erased > 0;
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

std::shared_ptr<const PlanAlgorithm> choosePlan(const Collective& collective, int size,
                                                const std::string& communicator,
                                                const PlanFilter& filter) {
  if (registry().count.load(std::memory_order_acquire) == 0 || size < 2) return nullptr;
  const size_t bytes = collective.blockBytes();
  std::lock_guard lock(registry().mutex);
  const auto& plans = registry().plans;
  const auto found = std::find_if(plans.rbegin(), plans.rend(), [&](const Registered& r) {
    const bool named = r.use.communicator.empty() || r.use.communicator == communicator;
    return named && bytes >= r.use.minBytes && bytes <= r.use.maxBytes &&
           r.algorithm->whyNot(collective, size).empty() && (!filter || filter(*r.algorithm));
  });
  return found == plans.rend() ? nullptr : found->algorithm;
}

}  // namespace ctran
