#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/collective/plan/algorithm.h"

namespace ctran {

/// Which calls a plan serves. All ranks have to say the same, before the same call: a call that is
/// served by different plans ends with Error(Mismatch).
struct PlanUse {
  std::string communicator = {};  ///< of that name; empty: of any
  size_t minBytes = 0;            ///< of a block, see Collective
  size_t maxBytes = std::numeric_limits<size_t>::max();
  /// It comes first, whatever was measured, except before what the hints of a call name.
  bool preferred = false;
};

/// From now on the plan competes for the calls of this process that it can serve: it serves those
/// for which it is preferred, or named by a hint, or was the fastest when it was measured. There is
/// no cost model of plans. Of several preferred ones, or of one name, the last one is taken.
/// Returns a number to remove it by. Throws Error(InvalidArgument) if the verifier rejects the
/// plan or it promises no result, Error(Unsupported) if it cannot be executed here. Any thread.
uint64_t registerPlan(const plan::Plan& plan, const PlanUse& use = {});
/// The same of a plan in which ranks may reach buffers of each other's callers. One that promises
/// no result serves calls whose hints may name such plans, and name it.
uint64_t registerStaged(const plan::Plan& plan, const PlanUse& use = {});
/// The same of a plan that may be wrong, which the verifier need not accept (PlanAlgorithm).
uint64_t registerUnproved(const plan::Plan& plan, const PlanUse& use = {});
/// The same of a function of the program, which competes as a plan of its name does.
uint64_t registerFunction(UserFunction function, const PlanUse& use = {});

/// Calls that are under way go on with it. Whether it was there.
bool removePlan(uint64_t number);

struct RegisteredPlan {
  uint64_t number;
  std::string name;  ///< for hints and tables: "plan:" and the plan's
  PlanUse use;
  std::shared_ptr<const PlanAlgorithm> algorithm;

  /// Whether it is for a call of that communicator, of blocks of so many bytes.
  bool isFor(const std::string& communicator, size_t blockBytes) const {
    return (use.communicator.empty() || use.communicator == communicator) &&
           blockBytes >= use.minBytes && blockBytes <= use.maxBytes;
  }
};
using RegisteredPlans = std::vector<RegisteredPlan>;

/// Changed under the lock of the registry alone.
inline constinit std::atomic<uint64_t> planVersionWord{0};
/// Another number whenever a plan was registered or removed; 0 if none ever was. Any thread.
inline uint64_t planVersion() { return planVersionWord.load(std::memory_order_acquire); }
inline constinit std::atomic<bool> functionsWereRegistered{false};
/// Those of now, the last one first. Takes a lock when they have changed since this thread asked.
const RegisteredPlans& registeredPlans();

/// The plan of the library that does what an algorithm between hosts of that name does, for one
/// host of so many ranks; null if there is none.
std::shared_ptr<const PlanAlgorithm> libraryPlan(CollectiveKind kind, std::string_view name,
                                                 int size);

}  // namespace ctran
