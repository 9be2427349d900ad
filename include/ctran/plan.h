#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "ctran/base/export.h"

namespace ctran::api {

/// Which calls a plan serves. All ranks pass the same, before the same call.
struct PlanUse {
  std::string communicator = {};  ///< serves the communicator of this name only; empty: any
  size_t minBytes = 0;            ///< smallest size of a block
  size_t maxBytes = std::numeric_limits<size_t>::max();
  bool preferred = false;  ///< the plan comes first, whatever was measured
};

/// Registers a plan in this process from now on. `json` is what `torchcomms.plan` writes. The plan
/// serves a call where it is preferred, named by a hint ("plan:NAME"), or was measured to be the
/// fastest. Returns a number to remove it by. Throws Error(InvalidArgument) if the text is no plan,
/// if the verifier rejects it or if it promises no result, Error(Unsupported) if it cannot be
/// executed here. Safe from any thread.
CTRAN_API uint64_t registerPlan(const std::string& json, const PlanUse& use = {});

/// Registers a program of MSCCL++ as registerPlan registers a plan. `json` is what its DSL writes.
/// Inputs and outputs that it reaches on other ranks are copied through memory that all ranks have.
/// One that promises no result (see openBuffers) serves only all_reduces whose hints, read by
/// Communicator::prepare, name it; their count is that of the elements of a chunk.
CTRAN_API uint64_t registerProgram(const std::string& json, const PlanUse& use = {});

/// The buffers of a program that promises no result.
struct OpenBuffers {
  int inputs = 0;   ///< chunks of the input
  int outputs = 0;  ///< chunks of the output
};
/// Returns them for a program of SendRecv or TestCollective; none for others. Throws as
/// registerProgram does.
CTRAN_API std::optional<OpenBuffers> openBuffers(const std::string& json);

/// Removes a plan; calls that are under way go on with it. Returns whether the plan was there.
CTRAN_API bool removePlan(uint64_t number);

}  // namespace ctran::api
