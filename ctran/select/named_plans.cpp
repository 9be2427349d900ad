#include "ctran/select/named_plans.h"

#include "ctran/collective/registry.h"
#include "ctran/select/plans.h"

namespace ctran {
namespace {

bool isNative(CollectiveKind kind, std::string_view name) {
  return findAlgorithm(AlgorithmPlace::SharedMemory, kind, name) != nullptr;
}

}  // namespace

NamedPlans::NamedPlans(const std::map<std::string, std::string>& hints, int size)
    : size_(size), inRankOrder_(wantsRankOrder(hints)) {
  const Preferences hint = hintedPreferences(hints), user = userPreferences();
  for (size_t k = 0; size > 1 && k < plans_.size(); ++k) {
    const auto kind = static_cast<CollectiveKind>(k);
    const auto find = [&](const Preferences& wanted, const char* why) {
      for (const std::string_view name : wanted.namesFor(kind)) {
        const bool native = isNative(kind, name);
        auto plan = native ? nullptr : libraryPlan(kind, name, size_);
        if (plan) plans_[k] = {std::string(name), why, std::move(plan)};
        isNamed_ = isNamed_ || plans_[k].plan;
        if (native || plans_[k].plan) return true;
      }
      return false;
    };
    if (!find(hint, kByHint)) find(user, kByUser);
  }
}

/// The plan that a hint of the call names: unless shared memory has an algorithm that is named
/// before it and can serve.
std::shared_ptr<const PlanAlgorithm> NamedPlans::findHinted(const Collective& c) const {
  if (static_cast<size_t>(c.kind) >= plans_.size() || size_ == 1) return nullptr;
  for (const std::string_view name : c.hints->preferences.namesFor(c.kind)) {
    if (isNative(c.kind, name)) return nullptr;
    auto [known, isNew] = hinted_.try_emplace({c.kind, std::string(name)});
    if (isNew) known->second = libraryPlan(c.kind, name, size_);
    if (known->second && known->second->whyNot(c, size_).empty()) return known->second;
  }
  return nullptr;
}

std::shared_ptr<const PlanAlgorithm> NamedPlans::findNamed(const Collective& c) const {
  const bool alone = c.hints && c.hints->alone;
  const bool inRankOrder = (inRankOrder_ && !alone) || (c.hints && c.hints->inRankOrder);
  const bool reorders = inRankOrder && isReduction(c.kind);
  if (c.hints && !reorders) {
    if (auto plan = findHinted(c)) return plan;
    if (alone || c.hints->preferences.of(c.kind) != nullptr) return nullptr;
  }
  const auto kind = static_cast<size_t>(c.kind);
  if (kind >= plans_.size() || !plans_[kind].plan) return nullptr;
  const auto& plan = plans_[kind].plan;
  return reorders || !plan->whyNot(c, size_).empty() ? nullptr : plan;
}

void NamedPlans::explain(const Collective& call, Explanation& explanation) const {
  const auto plan = find(call);
  if (!plan) return;
  const Named& named = plans_[static_cast<size_t>(call.kind)];
  if (call.hints && plan != named.plan) {
    explanation.algorithm = call.hints->preferences.namesFor(call.kind).front();
    explanation.why = std::string(kByHint) + ", by the plan " + plan->plan().name;
  } else {
    explanation.algorithm = named.algorithm;
    explanation.why = named.why + ", by the plan " + named.plan->plan().name;
  }
}

}  // namespace ctran
