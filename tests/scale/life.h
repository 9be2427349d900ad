#pragma once

#include <string>

#include "tests/scale/account.h"

namespace ctran::testing {

/// The life of one rank: all ranks create a communicator, which has to work, split it, and hear of
/// the failure of one of them. `folder`: of the store. Throws if something is not as it should be.
void live(int rank, const Arguments& arguments, Stage& stage, const std::string& folder);

}  // namespace ctran::testing
