// The hints of a communicator and of its calls.
#include <algorithm>
#include <utility>

#include "ctran/collective/preference.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/create.h"
#include "ctran/select/plans.h"

namespace ctran {
namespace {

using Hints = std::map<std::string, std::string>;

/// The hints that say how a communicator is created, which does not change.
constexpr const char* kOfCreation[] = {"ctran::host", "ctran::ib_fail_over", "ctran::stand_in",
                                       "ctran::through_host"};

/// Without those.
Hints ofCalls(const Hints& hints) {
  Hints left = hints;
  for (const char* key : kOfCreation) left.erase(key);
  return left;
}

/// Throws Error(InvalidArgument) if a plan is wanted that nobody has registered, or that promises
/// no result although none such is taken.
void checkPlans(const std::map<std::string, std::string>& hints, bool openPlans) {
  // The hints of the communicator may name a plan that is registered later.
  const auto wanted = hints.find("ctran::algorithm");
  if (wanted == hints.end() || wanted->second.find("plan:") == std::string::npos) return;
  const RegisteredPlans& plans = registeredPlans();
  for (const WantedAlgorithm& one : parseAlgorithms(wanted->second, kByHint)) {
    const auto isNamed = [&](const RegisteredPlan& plan) { return plan.name == one.name; };
    if (!one.name.starts_with("plan:")) continue;
    if (const auto plan = std::find_if(plans.begin(), plans.end(), isNamed); plan != plans.end()) {
      if (openPlans || !plan->algorithm->plan().open) continue;
      throw Error(ErrorKind::InvalidArgument,
                  std::string(kByHint) + " asks for '" + one.name +
                      "', a program that promises no result: it serves no calls",
                  {}, {}, "execute it with mscclpp");
    }
    std::string names;
    for (const RegisteredPlan& plan : plans) names += (names.empty() ? "" : ", ") + plan.name;
    throw Error(ErrorKind::InvalidArgument,
                std::string(kByHint) + " asks for '" + one.name +
                    "', but no plan of that name is registered",
                {}, {}, names.empty() ? "none is registered" : "there are: " + names);
  }
}

}  // namespace

Preferences checkedPreferences(Preferences wanted, bool gpus) {
  using Place = AlgorithmPlace;
  if (gpus) {
    wanted.checkPlaces({Place::Gpus, Place::GpuHosts}, "GPUs");
  } else {
    wanted.checkPlaces({Place::SharedMemory, Place::Hosts, Place::Network}, "tensors of the CPU");
  }
  return wanted;
}

void checkHints(const std::map<std::string, std::string>& hints) {
  for (const auto& [key, value] : ofCalls(hints)) {
    if (!key.starts_with("ctran::") || key == "ctran::algorithm" || key == "ctran::deterministic") {
      continue;
    }
    throw Error(ErrorKind::InvalidArgument,
                "a communicator knows no hint " + key +
                    "; there are ctran::algorithm, ctran::deterministic, ctran::host and "
                    "ctran::ib_fail_over");
  }
}

void Communicator::setHints(const std::map<std::string, std::string>& hints) {
  auto standing = checkedHints(ofCalls(hints), true);
  for (const auto& [key, value] : ofCalls(hints_)) hints_.erase(key);
  hints_.merge(ofCalls(hints));
  standing_ = std::move(standing);
}

std::shared_ptr<const CallHints> Communicator::hintsOfCall(
    const std::map<std::string, std::string>& hints) const {
  checkPlans(hints, false);
  return mergedHints(hints);
}

std::shared_ptr<const CallHints> Communicator::openHintsOfCall(
    const std::map<std::string, std::string>& hints) const {
  checkPlans(hints, true);
  const auto merged = mergedHints(hints);
  if (!merged) return nullptr;
  auto open = std::make_shared<CallHints>(*merged);
  open->openPlans = true;
  open->hash ^= 1ULL << 63;  // other decisions than of hints that take no such plans
  return open;
}

std::shared_ptr<const CallHints> Communicator::mergedHints(
    const std::map<std::string, std::string>& hints) const {
  if (!standing_) return checkedHints(hints, false);
  std::map<std::string, std::string> all = hints;
  all.merge(ofCalls(hints_));
  return checkedHints(all, true);
}

std::shared_ptr<const CallHints> Communicator::checkedHints(const Hints& hints, bool alone) const {
  auto found = callHints(hints, alone);
  if (found) static_cast<void>(checkedPreferences(found->preferences, gpus_));
  return found;
}

}  // namespace ctran
