#pragma once

#include "ctran/collective/collective.h"
#include "ctran/communicator.h"

namespace ctran::api {

/// A call as the engine describes it. Throws Error(InvalidArgument) for hints that there are not.
Collective engineCall(const Call& call, const ctran::Communicator& communicator);

}  // namespace ctran::api
