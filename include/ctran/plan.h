#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "ctran/base/export.h"

namespace ctran::api {

/// Which calls a plan serves. All ranks have to say the same, before the same call.
struct PlanUse {
  std::string communicator = {};  ///< of that name; empty: of any
  size_t minBytes = 0;            ///< of a block
  size_t maxBytes = std::numeric_limits<size_t>::max();
  bool preferred = false;  ///< it comes first, whatever was measured
};

/// Registers a plan, which is JSON as `torchcomms.plan` writes it, in this process from now on. It
/// serves where it is preferred, named by a hint ("plan:NAME"), or was the fastest when measured.
/// Returns a number to remove it by. Throws Error(InvalidArgument) if the text is none or the
/// verifier rejects the plan, Error(Unsupported) if it cannot be executed here. Any thread.
CTRAN_API uint64_t registerPlan(const std::string& json, const PlanUse& use = {});

/// The same of a program of MSCCL++, which is JSON as its DSL writes it. Inputs and outputs that it
/// reaches on other ranks are copied through memory that all have.
CTRAN_API uint64_t registerProgram(const std::string& json, const PlanUse& use = {});

/// Calls that are under way go on with it. Whether it was there.
CTRAN_API bool removePlan(uint64_t number);

}  // namespace ctran::api
