#pragma once

#include "ctran/base/json.h"

/// What the verifier says about plans, and about programs of MSCCL++, as JSON: see plan.h.
namespace ctran {

Json verified(const Json& request);
Json lowered(const Json& request);
Json loweredUnproved(const Json& request);
Json proved(const Json& request);

}  // namespace ctran
